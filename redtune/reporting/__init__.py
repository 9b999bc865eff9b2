"""What a search leaves behind, as one page that needs nothing but a browser."""
