"""The engine's runner and key/value cache for CPUs, with ONNX Runtime.

`native` contains the runner in C++.
"""
