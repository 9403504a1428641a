"""Child processes, engines and frontends: started, watched, replaced, and talked to in frames."""
