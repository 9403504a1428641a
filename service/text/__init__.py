"""Pure functions on text: sentences, protected spans, markup, terms, numbers, and the quality check.

They know neither the model nor the engine.
"""
