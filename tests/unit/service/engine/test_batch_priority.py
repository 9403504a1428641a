"""Steps of batch work run at a lower priority than those of other engines."""

import os
import threading
from queue import SimpleQueue
from typing import Any

import pytest

from service.engine.loop import EngineLoop
from service.engine.wire import Command, Job, Report, SearchParams
from service.engine.worker import _serve
from tests.fakes.fake_runner import FakeRunner

JOB = Job(
    id=1, source_ids=(5, 3), params=SearchParams(beam_size=2, max_target_tokens=3), deadline=1.5, submitted_at=0.5
)
JOB_WITHOUT_DEADLINE = JOB._replace(deadline=None, submitted_at=None)


class Enough(Exception):
    """The core is gone."""


@pytest.mark.parametrize(("batch_gives_way", "is_batch", "is_behind"), [(1, 1, 1), (1, 0, 0), (0, 1, 0)])
def test_steps_of_batch_work_alone_are_behind_other_engines(batch_gives_way, is_batch, is_behind):
    inbox: SimpleQueue[Command] = SimpleQueue()
    own, seen = os.getpriority(os.PRIO_PROCESS, 0), set[int]()

    class Runner(FakeRunner):
        def decode_step(self, *args: Any, **named: Any) -> Any:
            seen.add(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
            return super().decode_step(*args, **named)

    def send(report: Report) -> None:
        if report.outcomes:
            raise Enough

    inbox.put(JOB_WITHOUT_DEADLINE._replace(is_batch=bool(is_batch)))
    with pytest.raises(Enough):
        _serve(EngineLoop(Runner()), inbox, send, 60.0, batch_gives_way=bool(batch_gives_way))

    assert seen == {min(19, own + 10 * is_behind)}
