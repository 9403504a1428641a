"""The processes of a server beside its engines: what core and edges are made of, how they start and how they stop."""
