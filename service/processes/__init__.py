"""Child processes of the front process: started, watched, replaced, and talked to in frames."""
