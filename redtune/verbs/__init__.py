"""The verbs of the command line, one file each: its options, one call of the API, what it prints."""
