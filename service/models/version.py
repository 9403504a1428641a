"""One version of one model, from its start to its end: its bundle, its engines, its tokenizer.

    UNLOADED -> LOADING -> SERVING -> DRAINING        and from each, whatever goes wrong, -> DRAINING

Where memory is limited, a model goes back to UNLOADED, without tokenizer and engines, and may be loaded again.  A model
knows its own bundle.  It does not know other models, nor why it is started or stopped, and it runs no call
(`call_scheduler.py`).
"""

import asyncio
import math
import time
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from itertools import count
from pathlib import PurePosixPath

from model.bundle import GOLDEN_MAX_TARGET_TOKENS, Bundle, BundleError, GoldenSentence
from model.tokenizer import SupportsTokens
from service.call import Call
from service.config import ServerConfig
from service.engine.wire import Job, JobResult, SearchParams
from service.engine.worker import return_freed_memory
from service.errors import InternalError
from service.models.catalogue import UseCount
from service.models.codec import TextCodec
from service.models.info import search_params
from service.models.model_cache import ModelCache
from service.models.repository import BundleCandidate, load_tokenizer
from service.records import ModelInfo, TranslateOptions
from service.scheduler.admission import Reservation
from service.scheduler.pool import EnginePool
from service.threads import in_daemon_thread

_numbers = count()


class ModelState(StrEnum):
    """Where a version is in its life; the values are those of `admin.proto`."""

    UNLOADED = "unloaded"
    LOADING = "loading"
    SERVING = "serving"
    DRAINING = "draining"


class ModelVersion:
    """A version of a model, loaded or not: the `ServedModel` that calls use in the scheduler process."""

    def __init__(
        self,
        candidate: BundleCandidate,
        bundle: Bundle,
        info: ModelInfo,
        pool: EnginePool,
        config: ServerConfig,
        model_cache: ModelCache | None = None,
    ) -> None:
        """Nothing runs yet.

        Args:
            candidate: where the bundle was found.
            info: how the server offers the model.
            pool: of engines that run this bundle, not started.
            model_cache: loads the model for a call; None: it is loaded before any call finds it.
        """
        self.number = next(_numbers)  # among all models of this process
        self.candidate = candidate
        self.bundle = bundle
        self.sha256_12 = bundle.sha256_12
        self.info = info
        self.default_params = search_params(info, TranslateOptions())
        self.pool = pool
        self.in_use = UseCount(model_cache.wake if model_cache and model_cache.max_bytes is not None else None)
        self.state = ModelState.UNLOADED
        self._config = config
        self._model_cache = model_cache
        self._codec: TextCodec | None = None
        self._is_tested = False
        self._changing = asyncio.Lock()

    @property
    def is_loaded(self) -> bool:
        """Whether it has a tokenizer and engines."""
        return self._codec is not None

    @property
    def may_unload(self) -> bool:
        """Whether no call uses it, and calls that come may load it again."""
        return self.is_loaded and self.state is ModelState.SERVING and self.in_use.calls == 0

    @property
    def graph_bytes(self) -> int:
        """Size of the files that an engine loads."""
        manifest = self.bundle.manifest
        folder = PurePosixPath(manifest.variants[self.info.precision].encoder).parent
        return sum(entry.bytes for name, entry in manifest.files.items() if PurePosixPath(name).is_relative_to(folder))

    @property
    def codec(self) -> TextCodec:
        """The tokenizer with the limits on texts; only of a model that is loaded."""
        assert self._codec is not None
        return self._codec

    async def start(self) -> None:
        """Return when the model is warm and has passed its self-test.

        Raises:
            ValueError: tokenizer or self-test say that the bundle is not what it should be.
            DragomanError: its engines do not start, or give no translations.
        """
        async with self._changing:
            self._enter(ModelState.LOADING)
            try:
                await self._start()
            except BaseException:
                self._enter(ModelState.UNLOADED)
                await self.pool.stop()
                raise
            self._enter(ModelState.SERVING)

    async def unload(self) -> None:
        """End the engines and drop the tokenizer of a model that no call uses; `start` may follow."""
        self._codec = None
        self._enter(ModelState.UNLOADED)
        async with self._changing:
            await self.pool.stop()
        return_freed_memory()

    async def load(self, call: Call, reservation: Reservation) -> None:
        """Return when it is loaded, for a call that counts in `in_use`; raises as `ServedModel.load`."""
        assert self._model_cache is not None
        await self._model_cache.load_for(self, call, reservation)

    async def _start(self) -> None:
        on_demand = self._config.models.max_memory_mb is not None
        await self.pool.start(1 if on_demand else None)
        tokenizer = await in_daemon_thread(partial(load_tokenizer, self.bundle))  # an engine has tried it before
        if self._config.models.self_test and not self._is_tested:
            await run_self_test(
                tokenizer,
                self.pool,
                self.bundle.golden_sentences(self.info.precision),
                max_target_tokens=self.bundle.manifest.decoding.max_target_tokens,
                timeout_s=self._config.lifecycle.start_timeout_s,
            )
        self._is_tested = True
        self.in_use.used_at = time.monotonic()
        self._codec = TextCodec(
            tokenizer,
            max_characters=self._config.limits.max_characters,
            max_source_tokens=self.info.max_source_tokens,
        )

    def _enter(self, state: ModelState) -> None:
        if self.state is not ModelState.DRAINING:  # calls that have found it may still need it loaded
            self.state = state

    async def close(self) -> None:
        """End the engines in any state; calls that still use the model fail with Unavailable."""
        self.state = ModelState.DRAINING
        await self.pool.close()


# One golden sentence in so many may differ: another engine or processor rounds otherwise, and a near-tie between two
# words can fall the other way (of the 16 of en-de, 4 do in the native engine with AVX2).  With a tokenizer, a
# vocabulary or weights of another model, all differ.
ALLOWED_SHARE = 2
_ANY_TEXT = "Test."
_MAX_SHOWN = 80  # characters of a text in a message


async def run_self_test(
    tokenizer: SupportsTokens,
    pool: EnginePool,
    golden: Sequence[GoldenSentence],
    *,
    max_target_tokens: int,
    timeout_s: float,
) -> None:
    """Return when the model gives the translations that its bundle says it gives, or raise BundleError.

    Without golden sentences, one text must give finite scores.  The server's limits on texts do not hold here.
    """
    params = SearchParams(beam_size=1, max_target_tokens=min(GOLDEN_MAX_TARGET_TOKENS, max_target_tokens))
    texts = [sentence.source for sentence in golden] or [_ANY_TEXT]
    now = time.monotonic()
    call = Call(method="self_test", started=now, deadline=now + timeout_s)
    prefix = tuple(tokenizer.target_prefix)
    results = await pool.run([Job(tuple(tokenizer.encode(text)), params, prefix) for text in texts], call)
    if failures := [result for result in results if isinstance(result, InternalError)]:
        raise failures[0]
    best = [result.hypotheses[0] for result in results if isinstance(result, JobResult)]
    if not all(math.isfinite(one.score) for one in best):
        raise BundleError("the self-test gave scores that are no numbers")
    found = [tokenizer.decode(one.token_ids) for one in best]
    different = [(one, text) for one, text in zip(golden, found, strict=False) if text != one.translation]
    if len(different) > len(golden) // ALLOWED_SHARE:
        sentence, text = different[0]
        wanted, given = (one[:_MAX_SHOWN] for one in (sentence.translation, text))
        raise BundleError(
            f"{len(different)} of {len(golden)} golden sentences differ, at most {len(golden) // ALLOWED_SHARE} may: "
            f"{sentence.source[:_MAX_SHOWN]!a} gave {given!a}, expected is {wanted!a}"
        )
