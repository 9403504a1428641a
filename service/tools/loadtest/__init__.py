"""Load tests that send calls when they are due and record what happened to each."""
