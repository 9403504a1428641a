"""Admission of requests, the order of waiting jobs, their estimated cost, and the pool of engines.

The scheduler touches no text and no tensor.
"""
