"""The models of a server: found on disk, checked, loaded, replaced and unloaded.

`CallScheduler` has the engines of a model do the jobs of a call.  A model's codec converts text to token ids and back.
"""
