"""The pool of engine processes: kept alive, given jobs, and asked for the results."""
