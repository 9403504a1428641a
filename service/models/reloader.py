"""Serves the models that the bundle source has, and follows its changes.

The server loads the highest valid version of each name.  A new version is checked, started and tested before it takes
the place of the old one.  A bad version is refused and remembered, and changes nothing else.  The start fails if a
required model is refused.  A required model whose directory has gone still serves.

The reloader looks at the source on request, and periodically if it watches.  It acts on a change after two looks in a
row have found the same files, because somebody may still be copying them.  A bundle that is copied more slowly is
refused for its checksums, and tried again after its next change.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from model.bundle import Bundle
from service.errors import DragomanError, FailedPrecondition, InternalError, NotFound, Unavailable
from service.models.registry import ModelChange, Registry, Result
from service.models.repository import BundleCandidate, BundleCandidates, BundleSource, RepositoryError, check_until_good
from service.models.version import ModelVersion
from service.telemetry.logs import describe_error, get_logger
from service.threads import in_daemon_thread

_Outcome = TypeVar("_Outcome")


class Reloader:
    """Changes a registry, one change at a time; only for the event loop's thread."""

    def __init__(
        self,
        registry: Registry,
        scan: BundleSource,
        check: Callable[[BundleCandidate], Bundle],
        make_model: Callable[[BundleCandidate, Bundle], ModelVersion],
        *,
        watch_period_s: float | None = None,
    ) -> None:
        """Nothing runs yet.

        `check` is called in a thread and may raise ValueError.  Without a period, `watch` looks only on request.
        """
        self._registry = registry
        self._scan_source = scan
        self._check = check
        self._make_model = make_model
        self._watch_period_s = watch_period_s
        self._requested = asyncio.Event()
        self._seen: BundleCandidates | None = None  # at the last look; None: it failed
        self._followed: BundleCandidates = {}  # what `watch` has acted on
        self._checked: dict[BundleCandidate, Bundle | Exception] = {}  # by `prepare`, for `load`
        self._changing = asyncio.Lock()
        self._changes: set[asyncio.Task[object]] = set()  # under way or waiting for their turn
        self._is_closing = False

    async def prepare(self) -> None:
        """Check the candidates of each name until one is good; raise ValueError where nothing can be loaded."""

        def check_all() -> dict[BundleCandidate, Bundle | Exception]:
            checks = (check_until_good(self._check, found) for found in self._followed.values())
            return {candidate: outcome for checked in checks for candidate, outcome in checked.items()}

        self._seen = self._followed = await in_daemon_thread(self._scan_source)
        self._checked = await in_daemon_thread(check_all)
        errors = {candidate: error for candidate, error in self._checked.items() if isinstance(error, Exception)}
        for candidate, error in errors.items():
            if candidate.is_required or len(errors) == len(self._checked):
                raise error

    async def load(self) -> None:
        """Start what `prepare` found, all names at once; where memory is limited only the first one that serves.

        Raises:
            ValueError, DragomanError: no model serves, or a required one does not; the error says why.
        """

        async def update_all() -> None:
            if self._registry.model_cache.max_bytes is not None:  # the first one shows that models run here
                for found in self._followed.values():
                    await self._update(found, retry=False, is_tried=not self._registry.models)
                return
            await asyncio.gather(*(self._update(found, retry=False) for found in self._followed.values()))

        await self._exclusively(update_all)
        refusals, is_serving = self._registry.refusals, bool(self._registry.models)
        fatal = [refusal for refusal in refusals if refusal.candidate.is_required or not is_serving]
        if fatal:
            refusal = fatal[-1]
            raise refusal.error if refusal.is_foreseen else InternalError(refusal.reason) from refusal.error

    async def reload(self, model: str = "") -> list[ModelChange]:
        """Look at the source again, and try again what was refused; return all changes and refusals.

        Args:
            model: the only model to look at; empty for all.

        Raises:
            NotFound: neither the registry nor the source has this model.
            FailedPrecondition: the source is gone; everything stays as it was.
        """

        async def look_again() -> list[ModelChange]:
            return await self._apply(await self._scan(), model, retry=True)

        return await self._exclusively(look_again)

    def request(self) -> None:
        """Have `watch` reload everything soon; several requests before that count as one."""
        self._requested.set()

    async def watch(self) -> None:
        """Reload on request, and look at the source periodically if that is wanted; runs until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._watch_period_s):
                    await self._requested.wait()
            try:
                if self._requested.is_set():
                    self._requested.clear()
                    await self.reload()
                elif not self._is_closing:  # a look that is refused would be an error in the log at each period
                    await self.look()
            except DragomanError as error:
                get_logger().error("reload_failed", reason=str(error))
            except Exception as error:  # noqa: BLE001 - a bug in one look must not be the last look
                get_logger().error("reload_failed", **describe_error(error))

    async def look(self) -> None:
        """Look at the source and act on a change that has come to rest; what was refused waits until it changes."""
        await self._exclusively(self._look)

    async def freeze(self) -> None:
        """Make no change from now on, and undo the one that is under way."""
        self._is_closing = True
        changes = list(self._changes)
        for change in changes:
            change.cancel()
        await asyncio.gather(*changes, return_exceptions=True)

    async def close(self) -> None:
        """End all engines; calls that still use them fail with Unavailable."""
        await self.freeze()
        await self._registry.close()

    async def _exclusively(self, change: Callable[[], Awaitable[_Outcome]]) -> _Outcome:
        """Make a change when it is its turn, or raise Unavailable because the server stops."""

        async def in_turn() -> _Outcome:
            async with self._changing:
                return await change()

        if self._is_closing:
            raise Unavailable("the server is stopping")
        task = asyncio.create_task(in_turn())
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        try:
            return await task
        except asyncio.CancelledError:
            if self._is_closing:
                raise Unavailable("the server is stopping") from None
            raise

    async def _scan(self) -> BundleCandidates:
        try:
            return await in_daemon_thread(self._scan_source)
        except RepositoryError as error:
            raise FailedPrecondition(str(error)) from error

    async def _look(self) -> None:
        try:
            found = await self._scan()
        except FailedPrecondition:
            if self._seen is None:  # it has been logged
                return
            self._seen = None
            raise
        is_settled, self._seen = found == self._seen, found
        if is_settled and found != self._followed:
            await self._apply(found, retry=False)
            self._followed = found

    async def _apply(self, found: BundleCandidates, model: str = "", *, retry: bool) -> list[ModelChange]:
        """Make changes one after another, so that at most one model is there twice; `retry` what was refused."""
        served = {one.candidate.name: one for one in self._registry.models}
        names = {*found, *served}
        if model:
            names = {name for name in names if name == model or (name in served and served[name].info.name == model)}
            if not names:
                raise NotFound(f"there is no model {model[:80]!a}, neither loaded nor in the repository")
        # Required models whose directories are gone count as versions that are refused, while the old ones serve.
        gone = [one.candidate for name, one in served.items() if one.candidate.is_required and name not in found]
        found = {**{one.name: (replace(one, manifest_sha256="", fingerprint=""),) for one in gone}, **found}
        there = {candidate.directory for candidates in found.values() for candidate in candidates}
        self._registry.forget_refusals({refusal.candidate.directory for refusal in self._registry.refusals} - there)
        changes: list[ModelChange] = []
        for name in sorted(names, key=lambda name: (name not in found or not found[name][0].is_default, name)):
            changes += await self._update(found[name], retry=retry) if name in found else [self._registry.retire(name)]
            await self._registry.spread()  # before the next one, so that what was replaced can end
        return changes

    async def _update(
        self, candidates: Sequence[BundleCandidate], *, retry: bool, is_tried: bool = True
    ) -> list[ModelChange]:
        """Have the first good candidate serve; one that is tried again stays refused in the meantime."""
        changes: list[ModelChange] = []
        for place, candidate in enumerate(candidates):
            if model := self._registry.serving(candidate):
                changes.append(ModelChange(name=model.info.name, version=model.info.version, result=Result.UNCHANGED))
            elif not retry and candidate in [refusal.candidate for refusal in self._registry.refusals]:
                continue  # it has not changed since
            else:
                try:
                    model = await self._bring_up(candidate, is_tried=is_tried)
                except Exception as error:  # noqa: BLE001 - whatever a bundle makes us raise, the others must serve
                    changes.append(self._registry.refuse(candidate, error))
                    continue
                changes += self._registry.publish(model)
            self._registry.forget_refusals(lower.directory for lower in candidates[place:])
            break
        return changes

    async def _bring_up(self, candidate: BundleCandidate, *, is_tried: bool) -> ModelVersion:
        """Return a model that has started, unless it is not tried, or raise why there is none."""
        checked = self._checked.pop(candidate, None)
        if isinstance(checked, Exception):
            raise checked
        bundle = await in_daemon_thread(partial(self._check, candidate)) if checked is None else checked
        model = self._make_model(candidate, bundle)
        if is_tried:
            await self._registry.start(model)
        return model
