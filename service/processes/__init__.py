"""Child processes of the core, engines and edges: started, watched, replaced, and talked to in frames."""
