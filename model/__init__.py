"""What a translation model is and how it learns.

Config, tokenizer, manifest, bundle, shortlist and recipe need no torch; the rest does.
"""
