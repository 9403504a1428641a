"""Where a server has several edge processes: they share the port, and give their work to the one core process."""
