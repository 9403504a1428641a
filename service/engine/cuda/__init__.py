"""The engine on an NVIDIA GPU: its runner and its cache."""
