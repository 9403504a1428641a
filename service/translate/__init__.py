"""The use case, whatever the protocol: texts in, translations out."""
