"""How many replicas a load needs: one replica's measured latency, put into a simulation of several.  Pure."""
