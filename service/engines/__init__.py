"""Jobs to engine processes, and engine processes kept alive."""
