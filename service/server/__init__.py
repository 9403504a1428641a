"""The scheduler process and the frontends of a server: their parts, their start and their stop.

`main.py` tells the life of a server from the first check to the last connection.
"""
