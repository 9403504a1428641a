"""The server, its client and the command line: text in, text out."""
