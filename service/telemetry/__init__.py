"""The metrics, logs and traces of a server.

None of them contains texts.
"""
