"""The engine: token ids in, token ids out, in a process of its own.

The loop, the scheduler and the beam search are here; `cpu` and `cuda` contain the runners and caches of the devices.
"""
