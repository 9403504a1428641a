"""Keeps what is served the same as what lies in the model repository.

Of each name the highest version that is good serves.  A new one is checked, started, tested and only then put in the
old one's place; requests that have found the old one finish on it, and then its engines end.  A bad one is refused and
remembered, and changes nothing else.  Of models that are required, a refusal fails the start, and one whose directory
is gone serves on.  Knows neither signals nor gRPC.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

from model.bundle import Bundle
from service.daemon_threads import in_daemon_thread
from service.engine.process import return_freed_memory
from service.errors import FailedPrecondition, InternalError, NotFound, Unavailable
from service.registry.changes import ModelChange, Refusal, Result
from service.registry.host import Catalog, HostState, ModelHost
from service.registry.repository import BundleCandidate, BundleCandidates, BundleSource, RepositoryError
from service.telemetry.logs import describe_error, get_logger

_Outcome = TypeVar("_Outcome")


class ReloadObserver(Protocol):
    """Who counts; called in the event loop's thread."""

    def model_changed(self, name: str, result: str) -> None:
        """A version was loaded, retired or refused."""
        ...

    def model_loaded(self, host: ModelHost) -> None:
        """It answers from now on."""
        ...

    def model_unloaded(self, host: ModelHost) -> None:
        """It answers no more."""
        ...


class Reloader:
    """Owns the hosts.  One change at a time; only for the event loop's thread."""

    def __init__(
        self,
        source: BundleSource,
        check: Callable[[BundleCandidate], Bundle],
        make_host: Callable[[Bundle], ModelHost],
        observer: ReloadObserver,
        *,
        drain_s: float,
    ) -> None:
        """Nothing runs yet.

        Args:
            check: the bundle of a candidate, or a ValueError; called in a thread.
            make_host: a host of it, not started.
            drain_s: a version that is still used after this long ends all the same.
        """
        self.catalog = Catalog()
        self.refusals: list[Refusal] = []  # of the last look at the source
        self._source = source
        self._check = check
        self._make_host = make_host
        self._observer = observer
        self._drain_s = drain_s
        self._serving: dict[str, ModelHost] = {}  # by the source's key
        self._directories: dict[str, BundleCandidate] = {}  # what those were made of
        self._loading: set[ModelHost] = set()
        self._draining: dict[str, set[asyncio.Task[None]]] = {}
        self._leaving: set[ModelHost] = set()
        self._checked: dict[BundleCandidate, Bundle | Exception] = {}  # by `prepare`, until `load` takes them
        self._changing = asyncio.Lock()
        self._changes: set[asyncio.Task[object]] = set()  # under way or waiting for their turn
        self._is_closing = False

    @property
    def hosts(self) -> list[ModelHost]:
        """Every version that has engines: those that serve, in the catalog's order, and those that come and go."""
        return [*self._in_order(), *self._loading, *self._leaving]

    @property
    def is_ready(self) -> bool:
        """Whether every model that is served has an engine that takes work."""
        return bool(self._serving) and all(host.dispatcher.is_ready for host in self._serving.values())

    def is_refused(self, name: str) -> bool:
        """Whether a version of this model that lies there, above the one that serves, may not serve."""
        return any(self._name_of(refusal.candidate) == name for refusal in self.refusals)

    async def prepare(self) -> BundleCandidates:
        """The candidates, one of each name checked where one can be; for `load`.

        Raises:
            ValueError: there is nothing to load, or a required model is bad; says why.
        """
        candidates = await in_daemon_thread(self._source.scan)
        self._checked = await in_daemon_thread(partial(self._check_first, candidates))
        errors = {candidate: error for candidate, error in self._checked.items() if isinstance(error, Exception)}
        for candidate, error in errors.items():
            if candidate.is_required or len(errors) == len(self._checked):
                raise error
        return candidates

    async def load(self, candidates: BundleCandidates) -> None:
        """Bring up what `prepare` found, all names at once; return when each serves or is refused.

        Raises:
            ValueError, DragomanError: nothing can serve, or a required model cannot; says why.
        """
        await self._exclusively(self._load(candidates))
        fatal = [refusal for refusal in self.refusals if refusal.candidate.is_required or not self._serving]
        if fatal:
            refusal = fatal[-1]
            raise refusal.error if refusal.is_foreseen else InternalError(refusal.reason) from refusal.error

    async def reload(self, model: str = "") -> list[ModelChange]:
        """Look again, also at what was refused before, and make the changes; refusals are among the answers.

        Args:
            model: only this one; empty for all.

        Raises:
            NotFound: there is no such model, neither served nor in the repository.
            FailedPrecondition: there is no repository any more; everything stays as it was.
        """
        return await self._exclusively(self._look_again(model))

    async def follow(self, candidates: BundleCandidates) -> list[ModelChange] | None:
        """Make the changes that a scan suggests; what was refused is left alone until it changes.

        Returns:
            None when the source is another by the time it is our turn; nothing has changed then.

        Raises:
            FailedPrecondition: there is no repository any more; everything stays as it was.
        """
        return await self._exclusively(self._follow(candidates))

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
        leaving = [task for tasks in self._draining.values() for task in tasks]
        for task in leaving:
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
        await asyncio.gather(*(host.close() for host in self.hosts))

    async def _exclusively(self, change: Coroutine[None, None, _Outcome]) -> _Outcome:
        """Run a change when it is its turn.

        Raises:
            Unavailable: the server stops.
        """
        task = asyncio.create_task(self._in_turn(change))
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        try:
            return await task
        except asyncio.CancelledError:
            if self._is_closing:
                raise Unavailable("the server is stopping") from None
            raise

    async def _in_turn(self, change: Coroutine[None, None, _Outcome]) -> _Outcome:
        try:
            async with self._changing:
                if self._is_closing:
                    raise Unavailable("the server is stopping")
                return await change
        finally:
            change.close()  # one that never began would complain

    async def _load(self, candidates: BundleCandidates) -> list[ModelChange]:
        updates = (self._update(key, found, is_asked=False) for key, found in candidates.items())
        changes = await asyncio.gather(*updates)
        return [change for of_name in changes for change in of_name]

    async def _look_again(self, model: str) -> list[ModelChange]:
        candidates = await self._scan()
        return await self._apply(candidates, self._keys(candidates, model), is_asked=True)

    async def _follow(self, seen: BundleCandidates) -> list[ModelChange] | None:
        candidates = await self._scan()
        if candidates != seen:  # another change may have been made of what lies there now
            return None
        return await self._apply(candidates, self._keys(candidates, ""), is_asked=False)

    async def _scan(self) -> BundleCandidates:
        try:
            return await in_daemon_thread(self._source.scan)
        except RepositoryError as error:
            raise FailedPrecondition(str(error)) from error

    def _keys(self, candidates: BundleCandidates, model: str) -> set[str]:
        """Which keys of the source are meant."""
        keys = {*candidates, *self._serving}
        if not model:
            return keys
        meant = {key for key in keys if key == model}
        meant |= {key for key, host in self._serving.items() if host.info.name == model}
        if not meant:
            raise NotFound(f"there is no model {model[:80]!a}, neither loaded nor in the repository")
        return meant

    async def _apply(self, candidates: BundleCandidates, keys: Iterable[str], *, is_asked: bool) -> list[ModelChange]:
        changes: list[ModelChange] = []
        candidates = {**self._missing(candidates), **candidates}
        self.refusals = [refusal for refusal in self.refusals if refusal.candidate.name in candidates]
        default = {key for key, found in candidates.items() if found[0].is_default}
        # One after another: at most one model is there twice.
        for key in sorted(keys, key=lambda key: (key not in default, key)):
            if key in candidates:
                changes += await self._update(key, candidates[key], is_asked=is_asked)
            elif key in self._serving:
                changes.append(self._retire(key))
        return changes

    def _missing(self, candidates: BundleCandidates) -> BundleCandidates:
        """Required models whose directories are gone: as versions that will be refused, while the old ones serve."""
        return {
            key: (replace(served, manifest_sha256="", fingerprint=""),)
            for key, served in self._directories.items()
            if served.is_required and key not in candidates
        }

    async def _update(self, key: str, candidates: Sequence[BundleCandidate], *, is_asked: bool) -> list[ModelChange]:
        """Have the first good candidate serve."""
        changes: list[ModelChange] = []
        known = {refusal.candidate for refusal in self.refusals}
        self._forget_refusals(key, candidates)  # one that is tried again stays refused until that has said otherwise
        for place, candidate in enumerate(candidates):
            if self._is_served(key, candidate):
                self._forget_refusals(key, candidates[:place])  # nobody needs those below it
                host = self._serving[key]
                return [*changes, ModelChange(name=host.info.name, version=host.info.version, result=Result.UNCHANGED)]
            if candidate in known and not is_asked:
                continue
            brought = await self._bring_up(key, candidate)
            if not isinstance(brought, Refusal):
                self._forget_refusals(key, candidates[:place])
                return [*changes, *self._switch(key, candidate, brought)]
            changes.append(self._refuse(brought))
        return changes

    def _is_served(self, key: str, candidate: BundleCandidate) -> bool:
        served = self._directories.get(key)
        return (
            served is not None
            and served.directory == candidate.directory
            and served.manifest_sha256 == candidate.manifest_sha256
        )

    async def _bring_up(self, key: str, candidate: BundleCandidate) -> ModelHost | Refusal:
        """A host that can serve, or why there is none."""
        if leaving := self._draining.get(key):
            await asyncio.wait(leaving)  # never three versions of a model at once
        try:
            host = self._make_host(await self._checked_bundle(candidate))
        except Exception as error:  # noqa: BLE001 - whatever a bundle makes us raise, the others must serve
            return Refusal(candidate=candidate, error=error)
        self._loading.add(host)
        try:
            await host.start()
        except BaseException as error:
            await host.close()
            if isinstance(error, Exception):
                return Refusal(candidate=candidate, error=error)
            raise
        finally:
            self._loading.discard(host)
        return host

    async def _checked_bundle(self, candidate: BundleCandidate) -> Bundle:
        known = self._checked.pop(candidate, None)
        if isinstance(known, Exception):
            raise known
        return await in_daemon_thread(partial(self._check, candidate)) if known is None else known

    def _switch(self, key: str, candidate: BundleCandidate, host: ModelHost) -> list[ModelChange]:
        """From here on requests find the new one."""
        changes = [self._let_go(self._serving[key], key)] if key in self._serving else []
        self._serving[key] = host
        self._directories[key] = candidate
        self._publish()
        self._observer.model_loaded(host)
        info = host.info
        get_logger().info("model_loaded", model=info.name, version=info.version, sha256_12=host.sha256_12)
        return [self._changed(ModelChange(name=info.name, version=info.version, result=Result.LOADED)), *changes]

    def _retire(self, key: str) -> ModelChange:
        """Its directory is gone, and with it the wish that it serves."""
        host = self._serving.pop(key)
        del self._directories[key]
        self._forget_refusals(key, ())
        self._publish()
        return self._let_go(host, key)

    def _let_go(self, host: ModelHost, key: str) -> ModelChange:
        """End a host that nobody finds any more once those who have found it are done."""
        host.state = HostState.DRAINING
        self._observer.model_unloaded(host)
        self._leaving.add(host)
        tasks = self._draining.setdefault(key, set())
        task = asyncio.create_task(self._drain(host))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return self._changed(ModelChange(name=host.info.name, version=host.info.version, result=Result.RETIRED))

    async def _drain(self, host: ModelHost) -> None:
        is_done = await host.drain(self._drain_s)
        if not is_done:
            get_logger().warning(
                "model_still_used", model=host.info.name, version=host.info.version, calls=host.lease.calls
            )
        try:
            await host.close()
        finally:  # else its engines would be counted for ever
            self._leaving.discard(host)
        return_freed_memory()
        get_logger().info("model_retired", model=host.info.name, version=host.info.version)

    def _refuse(self, refusal: Refusal) -> ModelChange:
        candidate = refusal.candidate
        self.refusals = [old for old in self.refusals if old.candidate.directory != candidate.directory]
        self.refusals.append(refusal)
        digits = candidate.manifest_sha256[:12]
        get_logger().error("model_refused", model=candidate.label, sha256_12=digits, reason=refusal.reason)
        if not refusal.is_foreseen:
            get_logger().error("model_refused_unexpectedly", **describe_error(refusal.error))
        refusal.forget_frames()
        name, version = self._name_of(candidate), candidate.version
        return self._changed(ModelChange(name=name, version=version, result=Result.REFUSED, reason=refusal.reason))

    def _name_of(self, candidate: BundleCandidate) -> str:
        """The model that it would be a version of; a single bundle of no particular name replaces what serves."""
        return candidate.name or next((host.info.name for host in self._serving.values()), candidate.directory.name)

    def _changed(self, change: ModelChange) -> ModelChange:
        self._observer.model_changed(change.name, change.result)
        return change

    def _forget_refusals(self, key: str, still_there: Sequence[BundleCandidate]) -> None:
        """Of a key, keep only those of directories that are still there, whatever lies in them by now."""
        kept = {candidate.directory for candidate in still_there}
        self.refusals = [
            refusal for refusal in self.refusals if refusal.candidate.name != key or refusal.candidate.directory in kept
        ]

    def _check_first(self, candidates: BundleCandidates) -> dict[BundleCandidate, Bundle | Exception]:
        """What checking gave, of each name until one is good."""
        checked: dict[BundleCandidate, Bundle | Exception] = {}
        for found in candidates.values():
            for candidate in found:
                try:
                    checked[candidate] = self._check(candidate)
                    break
                except (ValueError, OSError) as error:
                    checked[candidate] = error
        return checked

    def _publish(self) -> None:
        self.catalog.replace(self._in_order())

    def _in_order(self) -> list[ModelHost]:
        """The default one before all others, which are in the order of names."""
        keys = sorted(self._serving, key=lambda key: (not self._directories[key].is_default, key))
        return [self._serving[key] for key in keys]
