"""What completions look like, one file a format; each is a `Parser`."""
