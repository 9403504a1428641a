"""The command line: `app.py` has the list of commands, and most commands have a file of their name.

The other files have options, input and output that several commands share.
"""
