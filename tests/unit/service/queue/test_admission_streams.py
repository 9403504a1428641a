"""Streams at the door: they have places of their own, and their texts are no requests."""

import pytest

from service.config import LimitsConfig
from service.errors import Overloaded, Unavailable
from service.queue.admission import Admission


class TestStreams:
    def test_streams_have_places_of_their_own(self):
        admission = Admission(LimitsConfig(max_streams=1, max_concurrent_requests=1))
        stream = admission.admit_stream()

        with pytest.raises(Overloaded, match="1 streams are open, at most 1 may be") as refused:
            admission.admit_stream()
        request = admission.admit(1, now=0.0)
        assert refused.value.reason == "streams"

        stream.release()
        admission.admit_stream().release()
        request.release()
        assert (admission.requests, admission.streams) == (0, 0)

    def test_stream_is_let_in_when_the_budget_is_full(self):
        admission = Admission(LimitsConfig(max_queued_tokens=10))
        admission.admit(1, now=0.0).take_tokens(10)

        part = admission.admit_stream().part()
        with pytest.raises(Overloaded):
            part.take_tokens(1)

    def test_closed_door_refuses_streams_and_not_the_texts_of_those_inside(self):
        admission = Admission(LimitsConfig())
        stream = admission.admit_stream()
        admission.close("draining")

        with pytest.raises(Unavailable, match="draining"):
            admission.admit_stream()
        stream.part().take_tokens(5)
        assert admission.tokens == 5

    def test_texts_of_streams_are_no_requests_and_give_back_what_they_took(self):
        departures: list[int] = []
        door = Admission(LimitsConfig(), on_leave=lambda: departures.append(door.tokens))
        stream = door.admit_stream()
        first, second = stream.part(), stream.part()
        first.take_characters(30)
        first.take_tokens(7)
        second.take_tokens(5)
        assert (door.requests, door.tokens) == (1, 12)

        first.release()
        second.release()
        stream.release()

        assert departures == [5, 0, 0]
        assert (door.requests, door.characters, door.tokens) == (0, 0, 0)

    def test_who_was_refused_wakes_nobody(self):
        departures = []
        admission = Admission(LimitsConfig(max_queued_tokens=10), on_leave=lambda: departures.append("left"))
        stream = admission.admit_stream()
        inside, refused = stream.part(), stream.part()
        inside.take_tokens(8)
        with pytest.raises(Overloaded):
            refused.take_tokens(8)

        refused.release()
        assert departures == []
        inside.release()
        assert departures == ["left"]
