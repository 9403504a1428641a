"""Which sentences decode together, and when their rows and caches are given up."""

from service.engine.loop import group_key
from tests.fakes.fake_runner import FakeRunner
from tests.fakes.scripted_engine import engine, job, never_ending, run


def test_finished_job_frees_its_rows_before_the_next_step():
    runner = FakeRunner()
    loop = engine(runner, max_rows=4)
    for each in (job(0, max_target_tokens=1), job(1, max_target_tokens=9), job(2, [9, 9, 9, 9])):
        loop.submit(each)

    first = loop.step()
    loop.step()

    assert [outcome.job_id for outcome in first] == [0]
    assert runner.step_rows == [4, 4]
    assert len(runner.encoded) == 3  # job 2 took the place at once


def test_group_of_a_job_is_its_beam_size_the_width_of_its_source_and_whether_it_keeps_to_its_shortlist():
    assert group_key(job(0, [5] * 3)) == (2, 64, False)
    assert group_key(job(0, [5] * 63, beam_size=1)) == (1, 64, False)
    assert group_key(job(0, [5] * 64, beam_size=5)) == (5, 128, False)
    assert group_key(job(0, use_shortlist=True)) == (2, 64, True)


def test_beam_sizes_decode_in_groups_of_their_own():
    runner = FakeRunner()
    loop = engine(runner)
    for number, beam_size in enumerate((1, 4, 1, 2)):
        loop.submit(job(number, beam_size=beam_size))

    loop.step()

    assert sorted(runner.step_rows) == [2, 2, 4]
    assert len(runner.encoded) == 4


def test_long_sources_decode_in_groups_of_their_own():
    runner = FakeRunner(never_ending)
    loop = engine(runner)
    for number, length in enumerate((3, 63, 64, 127, 128, 200)):  # one more each: end-of-sentence
        loop.submit(job(number, [5] * length))

    loop.step()

    assert runner.step_rows == [4, 4, 4]
    assert sorted(loop._groups) == [(2, 64, False), (2, 128, False), (2, 256, False)]


def test_caches_of_groups_long_unused_are_given_up():
    loop = engine()
    for number, beam_size in enumerate((1, 2, 3, 4, 5)):
        run(loop, [job(number, beam_size=beam_size)])

    assert list(loop._groups) == [(3, 64, False), (4, 64, False), (5, 64, False)]


def test_cache_that_grew_is_given_up_with_its_last_sentence():
    loop = engine(FakeRunner(never_ending), max_rows=1_000, max_encode_tokens=100_000, max_source_tokens=100_000)
    run(loop, [job(0, beam_size=1, max_target_tokens=1), *(job(n, max_target_tokens=1) for n in range(1, 300))])

    assert list(loop._groups) == [(1, 64, False)]
