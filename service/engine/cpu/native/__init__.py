"""The engine's runner for CPUs in C++, and the Python that builds, loads and calls its library.

The library computes encoder, decoder step and ranking; `choice.py` says whether it can serve a model.
"""
