"""Programs beside the server: translation of files of any length (`bulk`) and load tests (`loadtest`).

They call a server as any other client does, or run an engine of their own.
"""
