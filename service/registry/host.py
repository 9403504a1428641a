"""One version of one model in the server: its engine processes and what turns texts into their jobs, from start to end.

    LOADING -> SERVING -> DRAINING -> ENDED        and from LOADING, whatever goes wrong, -> ENDED

Knows one bundle; not which others there are, nor why it is started or stopped.
"""

import asyncio
from concurrent.futures import Executor
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from model.bundle import Bundle
from model.tokenizer import Tokenizer
from service.daemon_threads import in_daemon_thread
from service.engine.cuda.device import Device
from service.engines.dispatcher import Dispatcher
from service.registry.bundle_check import load_tokenizer
from service.registry.catalog import LoadedModel
from service.registry.model_info import DEFAULT_MAX_BEAM_SIZE, describe
from service.registry.self_test import run_self_test
from service.translation.codec import TextCodec
from service.translation.translator import Translator


class HostState(StrEnum):
    """Where a version is in its life; the values are those of `admin.proto`."""

    LOADING = "loading"
    SERVING = "serving"
    DRAINING = "draining"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConfig:
    """How this server offers every model."""

    precision: str | None = None  # None: the best of each bundle
    device: Device = "cpu"
    max_characters: int = 10_000
    max_beam_size: int = DEFAULT_MAX_BEAM_SIZE
    self_test: bool = True
    self_test_timeout_s: float = 60.0


class ModelHost:
    """Owns the engines of one bundle."""

    def __init__(self, bundle: Bundle, dispatcher: Dispatcher, executor: Executor, config: HostConfig) -> None:
        """Nothing runs yet.

        Args:
            dispatcher: of engines that run this bundle, not started.
            executor: for texts too long for the event loop.
        """
        self.bundle = bundle
        self.sha256_12 = bundle.sha256_12
        self.dispatcher = dispatcher
        self.info = describe(bundle, config.precision, config.device, max_beam_size=config.max_beam_size)
        self.state = HostState.LOADING
        self._executor = executor
        self._config = config
        self._model: LoadedModel | None = None

    @property
    def model(self) -> LoadedModel:
        """What requests use; only after `start`."""
        assert self._model is not None
        return self._model

    @property
    def calls(self) -> int:
        """Requests that use it now."""
        return self._model.lease.calls if self._model else 0

    async def start(self) -> None:
        """Return when it is warm and has passed its self-test.

        Raises:
            ValueError: tokenizer or self-test say that the bundle is not what it should be.
            DragomanError: its engines do not start, or give no translations.
        """
        await self.dispatcher.start()
        tokenizer = await in_daemon_thread(partial(load_tokenizer, self.bundle))  # an engine has tried it before
        if self._config.self_test:
            await run_self_test(
                tokenizer,
                self.dispatcher,
                self.bundle.golden_sentences(self.info.precision),
                max_target_tokens=self.bundle.manifest.decoding.max_target_tokens,
                timeout_s=self._config.self_test_timeout_s,
            )
        translator = Translator(self._codec(tokenizer), self.dispatcher, self._executor)
        self._model = LoadedModel(info=self.info, translator=translator)
        self.state = HostState.SERVING

    async def drain(self, within_s: float) -> bool:
        """Wait until nobody uses it any more; False when that took too long.  Nobody must find it from now on."""
        self.state = HostState.DRAINING
        if self._model is None:
            return True
        try:
            async with asyncio.timeout(within_s):
                await self._model.lease.wait_idle()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """End its engines, in whatever state it is; calls that still use it fail with Unavailable."""
        self.state = HostState.ENDED
        await self.dispatcher.close()

    def _codec(self, tokenizer: Tokenizer) -> TextCodec:
        return TextCodec(
            tokenizer,
            max_characters=self._config.max_characters,
            max_source_tokens=self.info.max_source_tokens,
        )
