"""The front process: what it is made of, how it starts and how it stops."""
