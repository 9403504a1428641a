"""What translates: a server behind a client, or a model in this process; and how parts are shared out on a Ray cluster.

Workers are plain records that travel to other processes; an API key is looked up where it is used and never travels.

A batch that is too large for a server is halved.  A server that has no room is waited for as long as it is alive, and
one that gives no answer for a while.  A call that was late says nothing of which it is, so the server is asked.
"""

import logging
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Self

from service.client.aio import in_turn
from service.client.channel import Backoff, ClientConfig
from service.errors import DeadlineExceeded, DragomanError, InvalidInput, Overloaded, TooLong, Unavailable
from service.extras import how_to_install
from service.records import ModelInfo, Priority, TranslateAll, TranslateOptions, Translation
from service.tools.bulk.formats import BulkPart
from service.tools.bulk.job import BulkJob, OnPart, translate_parts

TranslateBatch = Callable[[list[str]], Sequence[Translation]]

MAX_OUTAGE_S = 300.0
# Why there is no room now, and may be later.  Any other refusal may never pass, as of a text that is late even alone.
_ABOUT_ROOM = frozenset({"queue_full", "token_budget", "client_budget", "queue_seconds"})
_SAID_AGAIN_AFTER_S = 60.0
# gRPC's own refusal of a request or an answer has no reason of ours, only these words.
_MESSAGE_TOO_LARGE = "message larger than max"
# Too large for the memory, or for the time that a call may take.  It may also be that others leave too little of both;
# then half of it is refused too, down to one text, and that waits.
_LESS_MAY_FIT = frozenset({"out_of_memory", "deadline_unattainable"})
_WAIT_S = 30.0  # for a server at the start, when nothing is lost yet; not longer than the outage that is allowed
_READY_S = 10.0  # after a late call: the server says within this that it serves, or is taken to be away
_CONNECT_S = 2.0  # a server that is there has said within this that it serves, however little patience there is


class OtherVersion(DragomanError):
    """Another version of the model answers than the job was begun with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerWorker:
    """Calls a server, as work that others go before."""

    address: str
    client_config: Callable[[], ClientConfig]  # called in the process that calls the server
    options: TranslateOptions
    model: str | None = None
    source_language: str = ""  # BCP 47; empty: any
    target_language: str = ""
    model_version: str | None = None  # that has to answer; None: any
    timeout_s: float = 300.0  # of a call
    max_outage_s: float = MAX_OUTAGE_S  # that the server may give no answer at a stretch; for room there is no limit
    batch_size: int = 64
    max_calls: int = 8

    def info(self) -> ModelInfo:
        """Return the model that will answer; raises DragomanError without a server or such a model."""
        from service.client import Client
        from service.models.catalogue import index_of

        with Client(self.address, self.client_config()) as client:
            client.wait_until_ready(min(_WAIT_S, max(self.max_outage_s, _CONNECT_S)))
            infos = client.models()
        source, target = self.source_language, self.target_language
        return infos[index_of(infos, model=self.model, source_language=source, target_language=target)]

    def pinned(self, info: ModelInfo) -> Self:
        """Return the same, with which no other model or version may answer."""
        return replace(self, model=info.name, model_version=info.version)

    def open(self) -> TranslateAll:
        """Return what translates, in the process that calls it; it says on standard error why it waits."""
        return self._translate_all

    def _translate_all(self, texts: Iterable[str]) -> Iterator[Translation]:
        from service.client import Client

        def translate(batch: list[str]) -> Sequence[Translation]:
            reply = client.translate(batch, options=self.options, model=self.model, priority=Priority.BATCH)
            require_version(self.model_version, reply.model_version, f"{self.address}, model {reply.model}")
            return reply.translations

        # A call that waits for a server which is away would end as one that took too long; and what waits and halves
        # here is not to be sent five times by gRPC first.
        config = replace(self.client_config(), timeout_s=self.timeout_s, wait_for_ready=False, retries=False)
        with ExitStack() as stack:
            client = stack.enter_context(Client(self.address, config))
            ask = partial(client.wait_until_ready, _READY_S)
            calls = PatientCalls(translate, ask, max_outage_s=self.max_outage_s)
            batches = stack.enter_context(closing(batches_in_order(texts, calls, self.batch_size, self.max_calls)))
            stack.callback(calls.end)
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

    def open(self) -> TranslateAll:
        """Return what translates, in the process that calls it."""
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
    batches = iter(lambda: list(islice(iterator, batch_size)), [])
    pool = ThreadPoolExecutor(max_calls, thread_name_prefix="bulk")
    try:
        for _, call in in_turn(batches, lambda batch: pool.submit(translate, batch), max_calls):
            yield call.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # the calls under way end with their client


class PatientCalls:
    """Calls for batches: smaller ones where a batch is too large, and the same again as long as waiting may help.

    Its calls are in threads of their own.
    """

    def __init__(
        self,
        translate: TranslateBatch,
        ask: Callable[[], None],
        *,
        max_outage_s: float,
        pause: Callable[[float], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Call nothing yet.

        Args:
            translate: makes one call.
            ask: returns when the server says that it serves; raises Unavailable when it does not in time.
            max_outage_s: how long at a stretch the server may be away, late, or refuse for other reasons than room.
            pause: waits for so many seconds, or until the end.
        """
        self._translate = translate
        self._ask = ask
        self._max_outage_s = max_outage_s
        self._has_ended = threading.Event()
        self._pause = pause or self._has_ended.wait
        self._clock = clock
        self._said_at: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    def end(self) -> None:
        """Wait no more: nobody wants the translations."""
        self._has_ended.set()

    def __call__(self, batch: list[str]) -> list[Translation]:
        """Translate a batch, by halves where it is too large; a text that is too large alone has that as its error."""
        try:
            return [*self._answer(batch)]
        except (InvalidInput, Overloaded, DeadlineExceeded) as error:
            if not _is_too_large(error, len(batch)):
                raise
            if len(batch) == 1:
                return [Translation(error=TooLong(f"the text does not fit in a message: {error}", field="text"))]
        middle = len(batch) // 2
        return [translation for half in (batch[:middle], batch[middle:]) for translation in self(half)]

    def _answer(self, batch: list[str]) -> Sequence[Translation]:
        """Return the answer to a batch, for which the call is made again as long as waiting may help."""
        backoff, away_since = Backoff(), None
        while True:
            try:
                return self._call(batch)
            except (Overloaded, Unavailable, DeadlineExceeded) as error:
                failure = error
            if _is_too_large(failure, len(batch)):
                raise failure
            if _is_about_room(failure):
                away_since = None
            else:
                now = self._clock()
                away_since = now if away_since is None else away_since
                if now - away_since >= self._max_outage_s:
                    raise failure
            self._say_why(failure)
            self._pause(backoff.next_s(at_least_s=failure.retry_after_s if isinstance(failure, Overloaded) else 0.0))
            if self._has_ended.is_set():
                raise failure

    def _call(self, batch: list[str]) -> Sequence[Translation]:
        """Make one call; one that is late is an outage if the server says nothing when it is asked, too."""
        try:
            return self._translate(batch)
        except DeadlineExceeded as late:
            try:
                self._ask()
            except Unavailable as away:
                raise Unavailable(f"a call was late ({late}), and {away}") from late
            except DragomanError:
                pass  # a refusal is an answer
            raise

    def _say_why(self, error: DragomanError) -> None:
        """Say that a call waits because of this, once a minute for each reason."""
        reason = (type(error).__name__, error.reason if isinstance(error, Overloaded) else "")
        now = self._clock()
        with self._lock:
            if now - self._said_at.get(reason, float("-inf")) < _SAID_AGAIN_AFTER_S:
                return
            self._said_at[reason] = now
        until = "until there is room" if _is_about_room(error) else f"at most {self._max_outage_s:g} s (--max-outage)"
        print(f"waiting, {until}: {error}", file=sys.stderr, flush=True)


def _is_too_large(error: DragomanError, num_texts: int) -> bool:
    """Whether a batch that was refused like this has to become smaller; waiting alone does not help it."""
    if isinstance(error, Overloaded) and not error.reason and _MESSAGE_TOO_LARGE in str(error):
        return True
    if num_texts == 1:
        return False
    if isinstance(error, InvalidInput):
        return error.field == "texts"  # more of them than the server takes in a call
    if isinstance(error, DeadlineExceeded):
        return True  # the server lives and was too slow: the same batch would be too slow again
    return isinstance(error, Overloaded) and error.reason in _LESS_MAY_FIT


def _is_about_room(error: DragomanError) -> bool:
    """Whether it passes when the server has done other work."""
    return isinstance(error, Overloaded) and error.reason in _ABOUT_ROOM


def translate_on_ray(
    job: BulkJob,
    parts: Iterable[BulkPart],
    worker: ServerWorker | BundleWorker,
    address: str | None,
    num_workers: int,
    on_part: OnPart,
) -> None:
    """Translate and keep these parts, in whatever order; after an error of a worker, what has been kept stays.

    Input, output and bundle are on a file system that all nodes share.  What a killed worker had begun is handed out
    again, and a part is kept as a whole or not at all, so nothing is lost or doubled.

    Args:
        address: of a running cluster; None: one in this machine.
        num_workers: processes, each on a CPU of its own.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing leaves the machine
    try:
        import ray
    except ImportError as error:
        raise ValueError(f"--engine ray needs Ray: {how_to_install('ray')}") from error
    # Ray repeats here what workers write, such as why they wait.
    ray.init(address=address, ignore_reinit_error=True, log_to_driver=True, logging_level=logging.ERROR)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    actor: Any = RayWorker  # Ray's types have functions alone
    done = ray.data.from_items([asdict(part) for part in parts]).map(
        actor,
        fn_constructor_args=(job, worker),
        compute=ray.data.ActorPoolStrategy(size=num_workers),
        num_cpus=1,
    )
    for row in done.iter_rows():
        raise_failure(row.pop("failure"))
        on_part(BulkPart(**row))


class RayWorker:
    """An actor with a model or a connection of its own, which is opened with the first part.

    What ends a run comes back as a value: of what is raised here, Ray keeps the traceback and loses the kind, which
    decides what the command says and its exit code.
    """

    def __init__(self, job: BulkJob, worker: ServerWorker | BundleWorker) -> None:
        self._job = job
        self._worker = worker
        self._translate_all: TranslateAll | None = None
        self._failure = ""

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return row | {"failure": self._translate(BulkPart(**row))}

    def _translate(self, part: BulkPart) -> str:
        """Return why there is no such part, for `raise_failure`; empty where there is one now.

        After a failure nothing is tried: Ray hands on what a worker returns when all parts it was given are through.
        """
        try:
            if not self._failure:
                self._translate_all = self._translate_all or self._worker.open()
                translate_parts(self._job, [part], self._translate_all, lambda _: None)
        except (DragomanError, ValueError, OSError) as error:
            self._failure = pickle.dumps(error).hex()
        return self._failure


def raise_failure(failure: str) -> None:
    """Raise what a worker returned, if it is a failure."""
    if failure:
        raise pickle.loads(bytes.fromhex(failure))  # noqa: S301 - of a worker of ours
