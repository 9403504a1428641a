"""The engine on the CPU: its runner and its cache."""
