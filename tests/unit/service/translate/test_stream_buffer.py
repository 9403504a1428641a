"""The texts of one stream, against translations that the test finishes by hand."""

import asyncio
import random

import pytest

from service.engine.wire import FinishReason
from service.errors import InvalidInput, Unavailable
from service.records import TranslatedText, Translation, TranslationResult
from service.translate.stream import StreamBuffer


class Desk:
    """Translates when told to."""

    def __init__(self, max_texts: int = 4) -> None:
        self.futures: dict[int, asyncio.Future[TranslationResult]] = {}
        self.stream = StreamBuffer(self._translate, max_texts=max_texts)

    async def _translate(self, text: str) -> TranslationResult:
        text_id = int(text.removeprefix("text "))
        self.futures[text_id] = asyncio.get_running_loop().create_future()
        return await self.futures[text_id]

    def finish(self, text_id: int, *, text: str = "gut", model: str = "m") -> None:
        hypothesis = TranslatedText(text=text, score=0.0, finish_reason=FinishReason.END_OF_SENTENCE, target_tokens=1)
        result = TranslationResult(translations=[Translation(hypotheses=(hypothesis,))], model=model)
        self.futures.pop(text_id).set_result(result)

    async def take(self, *ids: int) -> "asyncio.Task[None]":
        """Begin to take these in and go as far as that goes."""
        task = asyncio.create_task(self.stream.take_in([(number, f"text {number}") for number in ids]))
        await settle()
        return task

    async def ids(self) -> list[int]:
        return [text_id for text_id, _ in await self.stream.answers()]


async def settle() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


async def test_places_are_taken_until_the_answer_is_sent():
    """Running, finished and being sent count alike; a text that finds no place is not even started."""
    desk = Desk(max_texts=2)
    taking = await desk.take(1, 2, 3)
    assert sorted(desk.futures) == [1, 2]

    desk.finish(1)
    desk.finish(2)
    await settle()
    assert not desk.futures  # finished, and nobody has read
    assert await desk.ids() == [1, 2]
    await settle()
    assert not desk.futures  # read, and still on its way
    assert desk.stream.num_held == 2

    sent = asyncio.create_task(desk.ids())
    await settle()
    assert sorted(desk.futures) == [3]
    assert taking.done()
    sent.cancel()
    desk.stream.cancel()


async def test_failure_is_raised_at_once_and_stops_the_work():
    desk = Desk()
    await desk.take(1, 2)
    desk.finish(1)
    await settle()
    desk.stream.fail(InvalidInput("settings came again", field="settings"))
    desk.stream.fail(Unavailable("later"))
    await settle()

    with pytest.raises(InvalidInput, match="settings came again"):
        await desk.ids()
    assert desk.futures[2].cancelled()


async def test_cancelled_stream_says_when_all_its_work_has_stopped():
    desk, said = Desk(), []
    await desk.take(1, 2)

    desk.stream.cancel(lambda: said.append("stopped"))
    assert said == []
    await settle()
    assert said == ["stopped"]

    desk.stream.cancel(lambda: said.append("at once"))
    assert said == ["stopped", "at once"]


async def test_draining_stream_answers_what_it_has_and_then_says_why_it_ends():
    desk = Desk()
    await desk.take(1)
    desk.stream.end_input(Unavailable("draining"))
    desk.finish(1)
    await settle()

    assert await desk.ids() == [1]
    with pytest.raises(Unavailable, match="draining"):
        await desk.ids()


async def test_answers_of_different_models_come_in_different_messages():
    desk = Desk()
    await desk.take(1, 2, 3)
    for number, model in ((1, "old"), (2, "old"), (3, "new")):
        desk.finish(number, model=model)
    await settle()

    assert [await desk.ids(), await desk.ids()] == [[1, 2], [3]]


class Client:
    """Sends and reads at random, one of each at a time, as a call does."""

    def __init__(self, seed: int) -> None:
        self.seeded = random.Random(seed)
        self.max_texts = self.seeded.randint(1, 5)
        self.desk = Desk(self.max_texts)
        self.sent = 0
        self.answered: list[int] = []
        self._taking: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[list[int]] | None = None

    async def send(self, count: int) -> None:
        if self._taking is None or self._taking.done():
            self._taking = await self.desk.take(*range(self.sent, self.sent + count))
            self.sent += count

    async def finish(self) -> None:
        if self.desk.futures:
            self.desk.finish(self.seeded.choice(sorted(self.desk.futures)))
        await settle()

    async def read(self) -> None:
        self._reading = self._reading or asyncio.create_task(self.desk.ids())
        await settle()
        if self._reading.done() and self._reading.exception() is None:
            self.answered += self._reading.result()
            self._reading = None

    async def act(self) -> None:
        match self.seeded.choice(["send", "finish", "finish", "read", "read"]):
            case "send":
                await self.send(self.seeded.randint(0, 7))
            case "finish":
                await self.finish()
            case "read":
                await self.read()
        assert self.desk.stream.num_held <= self.max_texts

    async def leave(self) -> None:
        left = [task for task in (self._taking, self._reading) if task is not None]
        for task in left:
            task.cancel()
        self.desk.stream.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await settle()


async def test_every_id_taken_in_is_answered_exactly_once():
    """Whatever the order of messages, results and reads; and no more is ever held than there are places."""
    for seed in range(100):
        client = Client(seed)
        for _ in range(40):
            await client.act()
        async with asyncio.timeout(60):
            while len(client.answered) < client.sent:
                await client.finish()
                await client.read()

        assert sorted(client.answered) == list(range(client.sent)), f"seed {seed}"
        await client.leave()
