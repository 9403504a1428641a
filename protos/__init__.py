"""The wire contract: translation.proto and the Python code generated from it (`python -m protos.generate`)."""
