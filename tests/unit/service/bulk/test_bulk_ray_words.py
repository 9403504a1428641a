"""What workers on Ray say, told where the run was started: it holds neither them nor the run."""

import queue
import threading
from typing import Any

import pytest

from service.bulk import ray_engine
from service.bulk.ray_engine import _repeated

WITHIN_S = 20.0


class Method:
    """Of an actor: started, and not waited for."""

    def __init__(self, queued: "queue.Queue[str | None]", *, is_lost: bool) -> None:
        self._queued = queued
        self._is_lost = is_lost

    def remote(self, line: str | None) -> None:
        if not self._is_lost:
            self._queued.put(line)


class Lines:
    """Ray's queue; where its node is lost, nothing arrives, and whoever waits for an answer waits on."""

    def __init__(self, *, is_lost: bool = False) -> None:
        self._queued: queue.Queue[str | None] = queue.Queue()
        self.is_shut_down = threading.Event()
        self.actor: Any = self
        self.put_nowait = Method(self._queued, is_lost=is_lost)

    def put(self, line: str | None) -> None:
        pytest.fail("it waits for the queue's answer")

    def get(self) -> str | None:
        return self._queued.get()

    def shutdown(self, *, force: bool) -> None:
        self.is_shut_down.set()

    def release(self) -> None:
        """Let the reading thread go."""
        self._queued.put(None)


def test_a_line_that_cannot_be_told_does_not_silence_the_next():
    lines, told = Lines(), list[str]()

    def say(line: str) -> None:
        if line == "first":
            raise BrokenPipeError
        told.append(line)

    with _repeated(lines, say) as say_from_afar:
        say_from_afar("first")
        say_from_afar("second")

    assert told == ["second"]
    assert lines.is_shut_down.wait(WITHIN_S)


def test_a_queue_that_is_lost_holds_neither_worker_nor_run(monkeypatch):
    monkeypatch.setattr(ray_engine, "_LAST_WORDS_S", 0.01)
    lines, told = Lines(is_lost=True), list[str]()

    with _repeated(lines, told.append) as say_from_afar:
        say_from_afar("nobody hears this")

    assert told == []
    assert not lines.is_shut_down.is_set()
    lines.release()
    assert lines.is_shut_down.wait(WITHIN_S)
