"""What translates: a server behind a client, or a model in this process.

Plain records that travel to other processes; an API key is looked up where it is used and never travels.
"""

import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Self

from service.client.channel import RetryPolicy
from service.errors import DragomanError
from service.records import ModelInfo, Priority, TranslateAll, TranslateOptions, Translation
from service.tools.bulk.run import (
    MAX_OUTAGE_S,
    TranslateBatch,
    WaitReport,
    is_too_large,
    late_if_alive,
    translated_in_pieces,
    until_answered,
)

if TYPE_CHECKING:
    from service.client.channel import ClientConfig

Say = Callable[[str], None]
Opener = Callable[[Say], TranslateAll]  # opens what translates, in the process that calls it; it says why it waits

_CONNECT_S = 2.0  # a server that is there has said within this that it serves, however little patience there is


def say_on_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class OtherVersion(DragomanError):
    """Another version of the model answers than the job was begun with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerWorker:
    """Calls a server, as work that others go before."""

    address: str
    client_config: "Callable[[], ClientConfig]"  # called in the process that calls the server
    options: TranslateOptions
    model: str | None = None
    source_language: str = ""  # BCP 47; empty: any
    target_language: str = ""
    model_version: str | None = None  # that has to answer; None: any
    wait_s: float = 30.0  # at the start, when nothing is lost yet; not longer than `max_outage_s`
    timeout_s: float = 300.0  # of a call
    ready_s: float = 10.0  # after a late call: the server says within this that it serves, or is taken to be away
    max_outage_s: float = MAX_OUTAGE_S  # that the server may give no answer at a stretch; for room there is no limit
    batch_size: int = 64
    max_calls: int = 8

    def info(self) -> ModelInfo:
        """Return the model that will answer; raises DragomanError without a server or such a model."""
        from service.client import Client
        from service.models.info import index_of

        with Client(self.address, self.client_config()) as client:
            client.wait_until_ready(min(self.wait_s, max(self.max_outage_s, _CONNECT_S)))
            infos = client.models()
        source, target = self.source_language, self.target_language
        return infos[index_of(infos, model=self.model, source_language=source, target_language=target)]

    def pinned(self, info: ModelInfo) -> Self:
        """Return the same, with which no other model or version may answer."""
        return replace(self, model=info.name, model_version=info.version)

    def __call__(self, say: Say = say_on_stderr) -> TranslateAll:
        return partial(self._translate_all, say)

    def _translate_all(self, say: Say, texts: Iterable[str]) -> Iterator[Translation]:
        from service.client import Client

        has_ended = threading.Event()
        report = WaitReport(say, max_outage_s=self.max_outage_s)

        def call(batch: list[str]) -> Sequence[Translation]:
            reply = client.translate(batch, options=self.options, model=self.model, priority=Priority.BATCH)
            require_version(self.model_version, reply.model_version, f"{self.address}, model {reply.model}")
            return reply.translations

        def call_patiently(batch: list[str]) -> Sequence[Translation]:
            return until_answered(
                partial(late_if_alive, partial(call, batch), partial(client.wait_until_ready, self.ready_s)),
                max_outage_s=self.max_outage_s,
                pause=lambda seconds: not has_ended.wait(seconds),
                on_wait=report.waits,
                is_final=lambda error: is_too_large(error, len(batch)),
            )

        translate = partial(translated_in_pieces, translate=call_patiently)
        # A call that waits for a server which is away would end as one that took too long; and what waits and halves
        # here is not to be sent five times by gRPC first.
        once = RetryPolicy(max_attempts=1)
        config = replace(self.client_config(), timeout_s=self.timeout_s, wait_for_ready=False, retry=once)
        with ExitStack() as stack:
            client = stack.enter_context(Client(self.address, config))
            batches = stack.enter_context(closing(batches_in_order(texts, translate, self.batch_size, self.max_calls)))
            stack.callback(has_ended.set)
            for translations in batches:
                yield from translations


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleWorker:
    """Loads a bundle into this process."""

    bundle: Path
    options: TranslateOptions
    precision: str | None = None
    threads: int | None = None
    model_version: str | None = None  # that it has to be; None: any

    def info(self) -> ModelInfo:
        """Return the bundle's model."""
        from model.bundle import Bundle
        from service.models.info import describe

        return describe(Bundle.load(self.bundle), self.precision)

    def pinned(self, info: ModelInfo) -> Self:
        """Return the same, with which no other version may be loaded."""
        return replace(self, model_version=info.version)

    def __call__(self, say: Say = say_on_stderr) -> TranslateAll:
        from service.local import LocalTranslator

        local = LocalTranslator.open(self.bundle, precision=self.precision, threads=self.threads)
        require_version(self.model_version, local.info.version, str(self.bundle))
        return partial(local.translate_all, options=self.options)


def require_version(wanted: str | None, given: str, where: str) -> None:
    """Raise OtherVersion if not the one version answers that translates the whole file."""
    if wanted not in (None, given):
        raise OtherVersion(
            f"{where}: version {given} answers, and the job was begun with {wanted}; what is done stays: "
            f"go on when {wanted} is back, or begin again with --force"
        )


def batches_in_order(
    texts: Iterable[str], translate: TranslateBatch, batch_size: int, max_calls: int
) -> Generator[Sequence[Translation], None, None]:
    """Yield the translations of each batch, `max_calls` batches at a time; texts are taken as translations are."""
    iterator = iter(texts)
    calls: deque[Future[Sequence[Translation]]] = deque()
    pool = ThreadPoolExecutor(max_calls, thread_name_prefix="bulk")
    try:
        while True:
            while len(calls) < max_calls and (batch := list(islice(iterator, batch_size))):
                calls.append(pool.submit(translate, batch))
            if not calls:
                return
            yield calls.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # the calls under way end with their client
