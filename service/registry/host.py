"""One version of one model in the server, from its start to its end: its engines, tokenizer and calls.

    LOADING -> SERVING -> DRAINING        and from LOADING, whatever goes wrong, -> DRAINING

A host knows one bundle; not which others there are, nor why it is started or stopped.
"""

import asyncio
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from itertools import count

from model.bundle import Bundle
from service.config import ServerConfig
from service.engines.dispatcher import Dispatcher
from service.errors import Overloaded, Wait
from service.queue.admission import Permit
from service.records import Call, ModelInfo, TranslateOptions
from service.registry.bundle_check import load_tokenizer
from service.registry.daemon_threads import in_daemon_thread
from service.registry.lease import Lease
from service.registry.model_info import TextCodec, search_params
from service.registry.repository import BundleCandidate
from service.registry.self_test import run_self_test
from service.registry.work import OnRoom, Work, WorkDone, check_time, run_work

_numbers = count()


class HostState(StrEnum):
    """Where a version is in its life; the values are those of `admin.proto`."""

    LOADING = "loading"
    SERVING = "serving"
    DRAINING = "draining"


class ModelHost:
    """Owns the engines of one bundle; the `ServedModel` of calls where edge and core are one process."""

    def __init__(
        self,
        candidate: BundleCandidate,
        bundle: Bundle,
        info: ModelInfo,
        dispatcher: Dispatcher,
        config: ServerConfig,
        wait_of: Callable[[Call], Wait | None] = lambda _: None,
    ) -> None:
        """Nothing runs yet.

        Args:
            candidate: where the bundle was found.
            info: how the server offers the model.
            dispatcher: of engines that run this bundle, not started.
            wait_of: see `Registry.wait_of`.
        """
        self.number = next(_numbers)  # among all hosts of this process
        self.candidate = candidate
        self.bundle = bundle
        self.sha256_12 = bundle.sha256_12
        self.info = info
        self.default_params = search_params(info, TranslateOptions())
        self.dispatcher = dispatcher
        self.lease = Lease()
        self.state = HostState.LOADING
        self._config = config
        self._wait_of = wait_of
        self._codec: TextCodec | None = None

    @property
    def codec(self) -> TextCodec:
        """The tokenizer with the limits on texts; exists only after `start`."""
        assert self._codec is not None
        return self._codec

    async def start(self) -> None:
        """Return when the model is warm and has passed its self-test.

        Raises:
            ValueError: tokenizer or self-test say that the bundle is not what it should be.
            DragomanError: its engines do not start, or give no translations.
        """
        await self.dispatcher.start()
        tokenizer = await in_daemon_thread(partial(load_tokenizer, self.bundle))  # an engine has tried it before
        if self._config.models.self_test:
            await run_self_test(
                tokenizer,
                self.dispatcher,
                self.bundle.golden_sentences(self.info.precision),
                max_target_tokens=self.bundle.manifest.decoding.max_target_tokens,
                timeout_s=self._config.lifecycle.start_timeout_s,
            )
        self._codec = TextCodec(
            tokenizer,
            max_characters=self._config.limits.max_characters,
            max_source_tokens=self.info.max_source_tokens,
        )
        self.state = HostState.SERVING

    def refuse_early(self, call: Call, permit: Permit) -> None:
        """Raise Overloaded if no text, however short, can be taken."""
        check_time((), self.default_params, call, permit, self.dispatcher)

    async def run(self, work: Work, call: Call, permit: Permit, on_room: OnRoom = None) -> WorkDone:
        """Translate, as `run_work`."""
        try:
            return await run_work(work, call, permit, self.dispatcher, self._config.limits, on_room)
        except Overloaded as error:
            if error.reason in {"queue_seconds", "deadline_unattainable"}:
                error.wait = self._wait_of(call)
            raise

    async def drain(self, within_s: float) -> bool:
        """Wait until no call uses it any more; False when that took too long.  No call may find it from now on."""
        self.state = HostState.DRAINING
        try:
            async with asyncio.timeout(within_s):
                await self.lease.wait_idle()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """End its engines, in whatever state it is; calls that still use it fail with Unavailable."""
        self.state = HostState.DRAINING
        await self.dispatcher.close()
