"""Who may come in, and in which order."""
