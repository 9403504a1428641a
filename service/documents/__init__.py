"""Formats of files: which text in a file is language, and how the file is written with the translations in it.

`formats.py` reads a file as a `Draft` of parts, which has units to translate and writes the file with a translation for
each.  The package neither translates nor knows who does.
"""
