"""Child processes: how they are started, watched and replaced, and how two processes call each other's methods.

The package does not know what the processes are for.
"""
