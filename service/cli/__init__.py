"""The command line: `app.py` has the list of commands, and each command has a file of its name.

The other files have options, input and output that several commands share.
"""
