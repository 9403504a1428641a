"""Formats of files: which text in a file is language, and how the file is written with the translations in it.

The package neither translates nor knows who does.
"""
