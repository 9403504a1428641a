"""Load tests that send calls when they are due and record what happened to each.

`plan.py` computes from the reports how many replicas hold a rate.
"""
