"""Sentences that start together, dealt to engines by length."""

from itertools import combinations, count, pairwise

from hypothesis import given
from hypothesis import strategies as st

from service.engine.job import Job, SearchParams
from service.engine.scheduler import Scheduler, SchedulerConfig
from service.engines.held import Held
from service.queue.placement import Room, Share, deal

BEAM = 4
PLENTY = 10**6  # of source tokens
FREE = Room(work=0, free_rows=128, free_tokens=PLENTY)
BUDGETS = SchedulerConfig(max_rows=16, max_source_tokens=1_024, max_encode_tokens=PLENTY)


def shares(*lengths: int) -> list[Share]:
    return [Share(length, BEAM) for length in lengths]


def lengths_of(dealt: list[int] | None, dealt_shares: list[Share], room: int) -> list[int]:
    assert dealt is not None
    return [share.source_tokens for share, to in zip(dealt_shares, dealt, strict=True) if to == room]


def most_work(pieces: list[list[Share]]) -> int:
    """Of a piece: all of it, and its longest once more."""
    return max(sum(share.work for share in piece) + max(share.work for share in piece) for piece in pieces if piece)


def test_long_sentences_go_to_one_engine_and_short_ones_to_another():
    mixed = shares(5, 30, 6, 5, 20, 6, 5, 5)

    dealt = deal(mixed, [FREE, FREE])

    assert lengths_of(dealt, mixed, 0) == [30]  # counted twice: 60
    assert lengths_of(dealt, mixed, 1) == [5, 6, 5, 20, 6, 5, 5]


def test_equal_sentences_are_halved():
    assert deal(shares(7, 7, 7, 7), [FREE, FREE]) == [0, 0, 1, 1]


def test_engine_that_has_less_gets_more():
    alike = shares(*[10] * 6)

    dealt = deal(alike, [Room(40 * BEAM, 128, PLENTY), Room(0, 128, PLENTY)])

    assert len(lengths_of(dealt, alike, 0)) == 1
    assert len(lengths_of(dealt, alike, 1)) == 5


def test_wide_beams_count_for_more_than_narrow_ones():
    mixed = [Share(10, beam) for beam in (10, 10, 10, 1, 1, 1)]

    dealt = deal(mixed, [FREE, FREE])

    assert dealt is not None
    assert [to for share, to in zip(mixed, dealt, strict=True) if share.rows == 10] == [0, 0, 1]


def test_no_engine_stays_idle_while_another_gets_several():
    assert deal(shares(9, 9, 9, 9), [FREE] * 3) == [0, 0, 1, 2]
    assert set(deal(shares(*range(40, 20, -1)), [FREE] * 16) or ()) == set(range(16))


def test_engine_without_rows_gets_nothing():
    alike = shares(10, 10)

    assert deal(alike, [Room(0, 3, PLENTY), Room(50, 8, PLENTY)]) == [1, 1]


def test_engine_without_source_tokens_gets_nothing():
    alike = shares(10, 10)

    assert deal(alike, [Room(0, 128, 63), Room(50, 128, 128)]) == [1, 1]


def test_there_is_no_deal_when_rows_do_not_suffice():
    assert deal(shares(10, 10), [Room(0, 4, PLENTY), Room(0, 3, PLENTY)]) is None
    assert deal(shares(10), [Room(0, -8, PLENTY)]) is None
    assert deal(shares(10), []) is None


def test_there_is_no_deal_when_source_tokens_do_not_suffice():
    assert deal(shares(65, 65), [Room(0, 128, 128), Room(0, 128, 127)]) is None
    assert deal(shares(65), [Room(0, 128, -128)]) is None


def test_short_sentences_stay_with_the_long_ones_where_the_other_engine_has_no_tokens_for_them():
    calls = [Share(500, 1)] * 20 + [Share(260, 1)] * 36
    rooms = [Room(work=0, free_rows=128, free_tokens=16_384)] * 2

    dealt = deal(calls, rooms)

    assert lengths_of(dealt, calls, 0) == [500] * 20 + [260] * 4
    assert lengths_of(dealt, calls, 1) == [260] * 32  # each as wide as 512: all its tokens


SHARES = st.lists(st.builds(Share, st.integers(1, 90), st.integers(1, 5)), min_size=1, max_size=9)
ROOMS = st.lists(
    st.builds(Room, st.integers(0, 200), st.integers(-5, 30), st.integers(-128, 1_024)), min_size=1, max_size=4
)
JOBS = st.lists(st.tuples(st.integers(1, 300), st.integers(1, 5)), max_size=9)


@given(dealt_shares=SHARES, rooms=ROOMS)
def test_no_engine_gets_more_than_it_has_room_for_and_each_one_neighbours_in_length(
    dealt_shares: list[Share], rooms: list[Room]
):
    dealt = deal(dealt_shares, rooms)

    if dealt is None:
        return
    assert len(dealt) == len(dealt_shares)
    spans = []
    for number, room in enumerate(rooms):
        mine = [share for share, to in zip(dealt_shares, dealt, strict=True) if to == number]
        assert sum(share.rows for share in mine) <= max(0, room.free_rows)
        assert sum(share.source_width for share in mine) <= max(0, room.free_tokens)
        if mine:
            spans.append((min(mine).source_tokens, max(mine).source_tokens))
    spans.sort()
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(spans))


@given(dealt_shares=SHARES, rooms=ROOMS)
def test_there_is_a_deal_whenever_one_engine_could_take_all(dealt_shares: list[Share], rooms: list[Room]):
    roomy = Room(0, sum(share.rows for share in dealt_shares), sum(share.source_width for share in dealt_shares))

    assert deal(dealt_shares, [*rooms, roomy]) is not None


def engine_with(jobs: list[Job]) -> tuple[Held, Scheduler]:
    """What it holds, as both sides of it count."""
    held, scheduler = Held.none_of(BUDGETS), Scheduler(BUDGETS)
    for job in jobs:
        held.add(job)
        scheduler.add(job)
    scheduler.schedule(0.0)
    return held, scheduler


@given(held_by_each=st.lists(JOBS, min_size=2, max_size=3), dealt_jobs=JOBS)
def test_each_engine_starts_at_once_all_that_it_is_dealt(
    held_by_each: list[list[tuple[int, int]]], dealt_jobs: list[tuple[int, int]]
):
    ids = count()

    def jobs_of(sizes: list[tuple[int, int]]) -> list[Job]:
        return [Job(id=next(ids), source_ids=(5,) * n, params=SearchParams(beam_size=beam)) for n, beam in sizes]

    engines = [engine_with(jobs_of(sizes)) for sizes in held_by_each]
    jobs = jobs_of(dealt_jobs)

    dealt = deal([Share.of(job) for job in jobs], [held.room for held, _ in engines])

    for job, number in zip(jobs, dealt or (), strict=dealt is not None):
        _, scheduler = engines[number]
        scheduler.add(job)
        assert scheduler.schedule(0.0).starts == (job,)


@given(lengths=st.lists(st.integers(1, 90), min_size=1, max_size=7), num_rooms=st.integers(1, 3))
def test_no_other_way_to_cut_the_row_is_better(lengths: list[int], num_rooms: int):
    row = shares(*sorted(lengths, reverse=True))
    num_pieces = min(num_rooms, len(row))

    dealt = deal(row, [FREE] * num_rooms)

    assert dealt is not None
    found = [[share for share, to in zip(row, dealt, strict=True) if to == number] for number in range(num_rooms)]
    others = [
        [row[begin:end] for begin, end in pairwise((0, *cuts, len(row)))]
        for cuts in combinations(range(1, len(row)), num_pieces - 1)
    ]
    assert most_work(found) == min(most_work(pieces) for pieces in others)
