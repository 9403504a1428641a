"""Translation of files of any length, in parts that are done in any order and joined at the end.

A run that was killed continues with the parts that are missing.
"""
