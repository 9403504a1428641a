"""Child processes as their parent sees them: how they start, are watched, replaced and called.

supervisor  a child process, and what keeps one running
rpc         calls methods of another process with records in frames
one_shot    one function call in a process of its own

The package does not know what the processes are for; `service/child_process.py` is the other side.
"""
