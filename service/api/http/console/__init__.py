"""The page at `/`, which translates a text while somebody writes it and shows how.

`routes.py` answers the page, and `files` contains it.
"""
