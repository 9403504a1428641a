"""When Python looks for garbage: rarely at what lives long, because every call waits meanwhile."""

import gc

# A collection of everything after so many of the middle generation; Python makes one after 10.  It looks at every
# call that waits, and in a flood it came every few seconds: pauses that a fair queue cannot make up for
# (tests/unit/service/queue/test_overload_simulation.py -k pauses).  Only such a collection finds cycles that lived
# through two others; calls leave few behind (tests/unit/service/grpc/test_call_books.py -k garbage).
_FULL_COLLECTION_EVERY = 100


def spare_what_is_loaded() -> None:
    """No later collection looks at what is alive now, and those of everything are rare; call it when all is loaded."""
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _FULL_COLLECTION_EVERY)
