"""The processes that send calls: they are connected before the clock starts, and it is the same for all."""

import asyncio
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing.connection import Connection

import grpc
import numpy as np
import pytest

from protos import translation_pb2 as pb
from service.errors import InvalidInput, NotFound, Unauthenticated, Unavailable
from service.tools.loadtest.run import (
    Connected,
    LoadConfig,
    StageOutcome,
    Task,
    require_server,
    send_calls,
    start,
)
from tests.fakes.scripted_server import failing, running

__all__ = ["running"]

Pair = tuple[Connection, Connection]  # the parent's end, the worker's


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    """The pipes of two workers."""
    made = [multiprocessing.Pipe() for _ in range(2)]
    with ExitStack() as stack:
        for pair in made:
            for end in pair:
                stack.enter_context(end)
        yield made


def task_of(address: str, concurrency: int = 0, timeout_s: float = 10.0) -> Task:
    load = LoadConfig(address=address, requests=[b""], timeout_s=timeout_s)
    return Task(load=load, due=None if concurrency else np.zeros(3), concurrency=concurrency, duration_s=0.5)


def ended(parent: Connection) -> StageOutcome:
    while not isinstance(message := parent.recv(), StageOutcome):
        pass
    return message


@pytest.mark.parametrize("concurrency", [0, 2])
async def test_a_worker_connects_first_and_sends_nothing_before_the_start_it_is_told(running, pairs, concurrency):
    ours, theirs = pairs[0]
    sending = asyncio.create_task(send_calls(task_of(running.address, concurrency), theirs))

    first = await asyncio.to_thread(ours.recv)
    assert isinstance(first, Connected)
    assert running.service.requests == []
    ours.send(time.monotonic() + 0.05)
    await sending

    calls = ended(ours).records
    assert len(calls) == len(running.service.requests) >= 3
    assert min(calls.due.min(), calls.sent.min()) >= 0.0


@pytest.mark.parametrize(
    ("other", "message"),
    [(None, r"1 of 2 processes .* not ready within 0 s"), (Unavailable("nobody is there"), "nobody is there")],
)
def test_no_worker_starts_before_all_are_connected(pairs, other, message):
    pairs[0][1].send(Connected())
    if other is not None:
        pairs[1][1].send(other)

    with pytest.raises(Unavailable, match=message):
        start([ours for ours, _ in pairs], within_s=0.0)

    assert not pairs[0][1].poll()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, Unauthenticated),
        (grpc.StatusCode.NOT_FOUND, NotFound),
        (grpc.StatusCode.INVALID_ARGUMENT, InvalidInput),
        (grpc.StatusCode.UNAVAILABLE, Unavailable),
    ],
)
async def test_a_server_that_refuses_the_first_call_gets_no_load(running, code, kind):
    running.service.handler = failing(code)

    with pytest.raises(kind):
        await asyncio.to_thread(require_server, load_of(running.address), 5.0)


@pytest.mark.parametrize("code", [None, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.DEADLINE_EXCEEDED])
async def test_a_server_that_is_only_busy_gets_its_load(running, code):
    if code is not None:
        running.service.handler = failing(code)

    await asyncio.to_thread(require_server, load_of(running.address), 5.0)

    assert len(running.service.requests) == 1


def load_of(address: str) -> LoadConfig:
    return LoadConfig(address=address, requests=[pb.TranslateRequest(texts=["a"]).SerializeToString()])
