"""The engine's runners and key/value cache for NVIDIA GPUs.

The other files reserve memory, record steps, and call CUDA.
"""
