"""The models of a server: found on disk, checked, loaded, replaced and unloaded.

A loaded model converts text to token ids and back, and passes jobs to its engines.
"""
