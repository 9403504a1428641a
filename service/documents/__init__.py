"""Files in text formats: what of them is language, and how they look with the translations in."""
