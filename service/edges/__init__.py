"""Edge and core: in one process, or several edges that share the port and give their work to the one core."""
