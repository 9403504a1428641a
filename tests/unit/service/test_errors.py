"""The errors of the service."""

import pickle

import pytest

from service.errors import DragomanError, InvalidInput, NotFound, OutOfMemory, Overloaded, TooLong, Unavailable


@pytest.mark.parametrize(
    "error",
    [
        InvalidInput("no such beam", field="options.beam_size"),
        TooLong("too long", field="texts[0]"),
        NotFound("no such model"),
        Overloaded("full", reason="queue_full", retry_after_s=1.5),
        OutOfMemory("no memory", retry_after_s=1.0),
        Unavailable("away", reason="draining"),
    ],
)
def test_error_arrives_in_another_process_as_it_was(error: DragomanError):
    arrived = pickle.loads(pickle.dumps(error))

    assert (type(arrived), str(arrived), vars(arrived)) == (type(error), str(error), vars(error))
