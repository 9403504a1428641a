"""A load on Dragoman for those who use Locust: `pip install locust grpcio protobuf`, then in the project's directory

    locust -f deploy/locust/locustfile.py --headless --host 127.0.0.1:50051 --users 1 --rate 80 --run-time 60s
    locust -f deploy/locust/locustfile.py --headless --host 127.0.0.1:50051 --users 32 --spawn-rate 32 --run-time 60s

With --rate the loop is open: calls are sent at the times of a Poisson process, whatever became of those before, and a
call's time counts from when it was due.  Every Locust user sends as much, so one is enough.  With --due-times the times
are those of a load test's report (`dragoman loadtest --report FILE.csv`), so that both make the same load.  Without
either, the loop is closed: each user calls again when it has its answer, which finds what so many callers get, and
says nothing about latency at a rate.  Refusals are failures of their status; nothing is sent twice.
"""

import csv
import random
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from itertools import count, cycle
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for protos, the contract

import gevent
import grpc
import grpc.experimental.gevent as grpc_gevent
from locust import User, events, task

from protos import translation_pb2 as pb

grpc_gevent.init_gevent()  # before the first channel: gRPC then waits as gevent does

TRANSLATE = "/dragoman.v1.TranslationService/Translate"
SAMPLE = "The children are playing in the garden."


@events.init_command_line_parser.add_listener
def add_options(parser: ArgumentParser) -> None:
    """Beside Locust's own; on its page they are fields."""
    parser.add_argument("--rate", type=float, default=0.0, help="calls a second of each user; 0: a closed loop")
    parser.add_argument("--due-times", default="", help="a CSV report of `dragoman loadtest`; its times instead")
    parser.add_argument("--seed", type=int, default=1, help="of the arrivals")
    parser.add_argument("--text-file", default="", help="texts to send, one a line, in turn")
    parser.add_argument("--beam", type=int, default=0, help="beam size; 0: the model's own")
    parser.add_argument("--timeout-s", type=float, default=60.0, help="deadline of a call in seconds")


class Translator(User):
    """Sends calls over a channel of its own."""

    _numbers = count()

    def on_start(self) -> None:
        """Connect, and lay out what will be sent."""
        options = self.environment.parsed_options
        self._channel = grpc.insecure_channel(
            self.host, options=[("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)]
        )
        grpc.channel_ready_future(self._channel).result(options.timeout_s)
        self._call = self._channel.unary_unary(TRANSLATE, None, pb.TranslateResponse.FromString)
        self._requests = cycle(requests(options))
        self._timeout_s = options.timeout_s
        self._due = due_times(options, next(self._numbers))
        self._began = time.monotonic()

    def on_stop(self) -> None:
        """Disconnect."""
        self._channel.close()

    @task
    def send(self) -> None:
        """The next call; in an open loop nobody waits for its answer."""
        if self._due is None:
            self._translate(time.monotonic())
            return
        due = next(self._due, None)
        if due is None:
            gevent.sleep(1.0)  # the times are over; Locust ends after --run-time
            return
        gevent.sleep(max(0.0, self._began + due - time.monotonic()))
        gevent.spawn(self._translate, self._began + due)

    def _translate(self, due: float) -> None:
        error: grpc.RpcError | None = None
        length = 0
        try:
            length = self._call(next(self._requests), timeout=self._timeout_s).ByteSize()
        except grpc.RpcError as failure:
            error = failure
        self.environment.events.request.fire(
            request_type="grpc",
            name="Translate" if error is None else f"Translate {error.code().name}",
            response_time=(time.monotonic() - due) * 1e3,
            response_length=length,
            exception=error,
        )


def requests(options: Any) -> list[bytes]:
    """Serialised, one for each text."""
    texts = [SAMPLE]
    if options.text_file:
        texts = [line for line in Path(options.text_file).read_text(encoding="utf-8").split("\n") if line.strip()]
        if not texts:
            raise SystemExit(f"{options.text_file} has no text")
    search = pb.TranslateOptions(beam_size=options.beam) if options.beam else None
    return [pb.TranslateRequest(texts=[text], options=search).SerializeToString() for text in texts]


def due_times(options: Any, user: int) -> Iterator[float] | None:
    """Seconds from the user's start; None for a closed loop."""
    if options.due_times:
        with Path(options.due_times).open(encoding="utf-8") as file:
            return iter([float(row["due_s"]) for row in csv.DictReader(file)])
    return poisson(options.rate, options.seed + user) if options.rate else None


def poisson(rate: float, seed: int) -> Iterator[float]:
    """Endless."""
    draw, at = random.Random(seed), 0.0
    while True:
        at += draw.expovariate(rate)
        yield at
