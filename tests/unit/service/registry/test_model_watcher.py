"""When the watcher has the models looked at again."""

import asyncio
from pathlib import Path

import pytest

from service.errors import FailedPrecondition
from service.registry.changes import ModelChange
from service.registry.repository import BundleCandidate, BundleCandidates, RepositoryError
from service.registry.watcher import ModelWatcher
from tests.fakes.calls import eventually


def state(fingerprint: str) -> BundleCandidates:
    return {"a": (BundleCandidate(directory=Path("a/1"), fingerprint=fingerprint),)}


class Scripted:
    """A source that shows one state after another, and a reloader that writes down what it is asked."""

    def __init__(self, *states: BundleCandidates | None) -> None:
        self.states = list(states)
        self.followed: list[BundleCandidates] = []
        self.outcomes: list[Exception | None] = []  # of the next requests to follow; afterwards all succeed
        self.reloads = 0
        self.reloaded = asyncio.Event()

    def scan(self) -> BundleCandidates:
        found = self.states.pop(0)
        if found is None:
            raise RepositoryError("it is gone")
        return found

    async def follow(self, candidates: BundleCandidates) -> list[ModelChange] | None:
        self.followed.append(candidates)
        if not self.outcomes:
            return []
        if error := self.outcomes.pop(0):
            raise error
        return None

    async def reload(self) -> list[ModelChange]:
        self.reloads += 1
        self.reloaded.set()
        raise FailedPrecondition("one is bad")


ONE, TWO, THREE = state("1"), state("2"), state("3")


@pytest.mark.parametrize(
    ("states", "followed"),
    [
        ([ONE, ONE], [ONE]),  # the first look has nothing to compare with
        ([ONE, TWO, THREE, THREE], [THREE]),  # somebody was still copying
        ([ONE, ONE, ONE], [ONE]),
        ([ONE, ONE, TWO, TWO, ONE, ONE], [ONE, TWO, ONE]),
        ([ONE, None, ONE, ONE], [ONE]),
        ([None, None], []),
    ],
)
async def test_change_is_followed_once_when_two_looks_have_seen_the_same(states, followed):
    scripted = Scripted(*states)
    watcher = ModelWatcher(scripted, scripted, 1.0)

    for _ in states:
        await watcher.look()

    assert scripted.followed == followed


async def test_change_that_could_not_be_followed_is_followed_at_the_next_look():
    scripted = Scripted(*[ONE] * 5)
    scripted.outcomes = [KeyError("a bug"), None]
    watcher = ModelWatcher(scripted, scripted, 1.0)

    await watcher.look()
    with pytest.raises(KeyError):
        await watcher.look()
    for _ in range(3):
        await watcher.look()

    assert scripted.followed == [ONE] * 3  # failed, came too late, done


async def test_request_has_everything_reloaded_and_a_refusal_is_not_the_last_word():
    scripted = Scripted()
    watcher = ModelWatcher(scripted, scripted, None)
    running = asyncio.create_task(watcher.run(ONE))

    for _ in range(2):
        scripted.reloaded.clear()
        watcher.request()
        await asyncio.wait_for(scripted.reloaded.wait(), 5)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert scripted.reloads == 2


async def test_what_was_loaded_at_the_start_is_not_followed_again():
    scripted = Scripted(ONE, ONE, TWO, TWO)
    watcher = ModelWatcher(scripted, scripted, 0.001)

    running = asyncio.create_task(watcher.run(ONE))
    await eventually(lambda: bool(scripted.followed))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert scripted.followed == [TWO]
