"""The lifecycle of a call: what its caller is told of an error."""

import time

import pytest

from service.api.lifecycle import CallLifecycle
from service.call import Call
from service.errors import DeadlineExceeded
from service.telemetry.metrics import Metrics


@pytest.mark.parametrize(
    ("left_s", "message"),
    [
        (-1.0, "the call took longer than 5 s, the most this server allows"),
        (3.0, "the request did not arrive within 2 s"),
    ],
)
def test_only_a_call_that_is_over_the_server_s_limit_is_told_so(left_s, message):
    now = time.monotonic()
    call = Call(method="Translate", started=now + left_s - 5.0, deadline=now + left_s, limit_s=5.0)

    told = CallLifecycle(Metrics()).fail(DeadlineExceeded("the request did not arrive within 2 s"), call)

    assert (str(told), call.code) == (message, "DEADLINE_EXCEEDED")
