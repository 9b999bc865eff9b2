"""redtune."""
