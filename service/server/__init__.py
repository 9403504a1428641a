"""The processes of a server beside its engines: what scheduler and frontends are made of, how they start and stop."""
