"""Upkeep of a process with an event loop: how often it measures its lag, and what garbage collection leaves alone."""

import gc

MONITOR_PERIOD_S = 0.25  # idle, each round costs CPU time

# A collection of the whole heap follows so many collections of the middle generation; Python's default is 10.  It looks
# at every waiting call, and in a flood it came every few seconds: pauses that a fair queue cannot make up for
# (tests/unit/service/queue/test_overload_simulation.py -k pauses).  Only such a collection finds cycles that lived
# through two others; calls leave few behind (tests/component/test_call_handlers.py -k garbage).
_FULL_COLLECTION_EVERY = 100


def spare_what_is_loaded() -> None:
    """Keep later garbage collections from looking at what is alive now, and make collections of everything rare."""
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _FULL_COLLECTION_EVERY)
