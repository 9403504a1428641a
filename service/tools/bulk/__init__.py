"""Translates files of any length through a model: in parts, resumable, in order."""
