"""Load tests: calls sent when they were due, and what became of each."""
