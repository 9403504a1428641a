"""Which engines, threads and rows suit a machine and a model: settings measured in turns, and one of them chosen.

Knows token ids and times; no text, tables or files.

Every setting is measured in several short turns that alternate with those of the others, so that a moment in which the
machine is slow meets all of them.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from service.commands.tuning_choice import (
    Measurement,
    Preference,
    Sample,
    Setting,
    Shape,
    choose,
    shapes,
    with_other_rows,
)
from service.commands.tuning_engines import EnginePool
from service.config import EngineConfig
from service.engine.scheduler import SchedulerConfig
from service.errors import DragomanError
from service.threads import available_threads

_CONTENDS = 0.25  # a setting so much slower than the best, in both, gets no more turns than ...
_MIN_ROUNDS = 2  # ... these
_MAX_ROUNDS = 7  # turns of one setting; more change no median that matters
_SHARE_OF_SHAPES = 0.45  # of the time: engines x threads first, rows for the best of them afterwards
_TURNS_PLANNED = 5  # that the time of a stage is cut into, per setting; starting the engines takes some of it
_TURN_S = (0.3, 4.0)  # shortest and longest
_SHARE_OF_SINGLES = 0.3  # of a turn: sentences one at a time


class Tuner:
    """Measures settings on real engines."""

    def __init__(
        self,
        bundle_dir: Path,
        config: EngineConfig,
        sample: Sample,
        *,
        start_timeout_s: float,
        on_turn: Callable[[Setting], None] = lambda _: None,
    ) -> None:
        """Take what is the same for all settings.

        Args:
            on_turn: told of each turn when it begins.
        """
        self._pool = EnginePool(bundle_dir, config, sample, start_timeout_s)
        self._sample = sample
        self._on_turn = on_turn
        self._measured: dict[Setting, Measurement] = {}
        self._latencies_s: dict[Shape, list[float]] = {}
        self._num_singles = 0  # in each turn, the same sentences for every setting; 0: not known yet

    async def run(self, seconds: float, preference: Preference) -> list[Measurement]:
        """What was found within this time; the engines are gone afterwards."""
        began = time.monotonic()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._stage(shapes(available_threads()), began + _SHARE_OF_SHAPES * seconds)
                    await self._stage(self._finalists(preference), began + seconds)
        finally:
            await self._pool.close()
        return list(self._measured.values())

    def _finalists(self, preference: Preference) -> list[Setting]:
        """The best engines x threads, with every number of rows."""
        measured = [each for each in self._measured.values() if each.is_usable]
        if not measured:
            return []
        return with_other_rows(choose(measured, preference).setting, self._sample.params.beam_size)

    async def _stage(self, settings: Sequence[Setting], until: float) -> None:
        """Give each setting a turn, and more as long as there is time and it has a chance."""
        await self._pool.keep(settings)
        turn_s = (until - time.monotonic()) / (_TURNS_PLANNED * max(1, len(settings)))
        turn_s = min(max(turn_s, _TURN_S[0]), _TURN_S[1])
        for number in range(_MAX_ROUNDS):
            contenders = [setting for setting in settings if self._contends(setting, number)]
            await self._pool.keep(contenders)
            for setting in contenders:
                if number > 0 and time.monotonic() + turn_s > until:
                    return
                self._on_turn(setting)
                await self._turn(setting, number, turn_s)

    async def _turn(self, setting: Setting, number: int, turn_s: float) -> None:
        """Single sentences unless only rows differ, and a load: the same sentences in this turn of each setting."""
        latencies_s = self._latencies_s.setdefault(setting.shape, [])
        measurement = self._measured.setdefault(setting, Measurement(setting, latencies_s))
        try:
            engines = await self._pool.engines(setting)
            if setting.max_rows == SchedulerConfig().max_rows:
                self._num_singles = self._num_singles or await engines.singles_in(_SHARE_OF_SINGLES * turn_s)
                latencies_s += await engines.latencies(number, self._num_singles)
            measurement.turns.append(await engines.load(number, turn_s * (1 - _SHARE_OF_SINGLES)))
        except DragomanError as error:
            measurement.failure = str(error)

    def _contends(self, setting: Setting, number: int) -> bool:
        """Whether it gets a turn in this round."""
        mine = self._measured.get(setting)
        if mine is None or (number < _MIN_ROUNDS and mine.failure is None):
            return True
        usable = [each for each in self._measured.values() if each.is_usable]
        return mine in usable and (
            mine.rows_per_s >= (1 - _CONTENDS) * max(each.rows_per_s for each in usable)
            or mine.latency_p50_s <= (1 + _CONTENDS) * min(each.latency_p50_s for each in usable)
        )
