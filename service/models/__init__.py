"""The models of a server: found on disk, checked, loaded, replaced and unloaded.

A loaded model passes jobs to its engines; its codec converts text to token ids and back.
"""
