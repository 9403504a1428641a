"""A cache grows with its sentences, gives back what none of them needs, and says when its arrays are other ones."""

from service.engine.cpu.cache import CpuCache
from service.engine.key_value_cache import CROSS_COLUMNS
from tests.fakes.checked_cache import SHAPE, CheckedCache, encoded, memories, own_parents


def test_cross_columns_follow_the_longest_live_source_and_narrow_when_much_is_spared():
    def columns() -> int:
        return int(checked.cache.cross_arrays()[0].shape[2])

    checked = CheckedCache(2)
    widths = []
    for length in (8, 9, 65):
        checked.append(encoded(length), [0])
        widths.append(columns())
    assert widths == [8, 16, 72]
    checked.remove(2)
    checked.append(encoded(64), [0])
    assert columns() == 72  # 64 would spare a ninth
    checked.remove(2)
    checked.append(encoded(3), [0])
    assert columns() == 16
    assert columns() % CROSS_COLUMNS == 0
    checked.check()


def test_self_columns_that_only_an_ended_sentence_needed_are_given_back():
    def columns() -> int:
        return int(checked.cache.self_arrays()[0].shape[2])

    checked = CheckedCache(4)
    checked.append(encoded(3), [0])
    narrowest = columns()
    for _ in range(50):
        checked.step(own_parents(1, 4))
    widest = columns()
    checked.append(encoded(3, 4), [0, 1])
    assert columns() == widest >= 4 * 50

    checked.remove(0)
    checked.append(encoded(3), [0])

    assert columns() == narrowest
    checked.check()


def test_memory_that_only_a_former_load_needed_is_given_back():
    checked = CheckedCache(2)

    def allocated() -> int:
        return sum(memory.size for memory in memories(checked.cache))

    at_first = allocated()
    checked.append(encoded(*[60] * 400), range(400))
    checked.step(own_parents(400, 2))
    most = allocated()
    assert (most > at_first, checked.cache.has_grown) == (True, True)
    while len(checked.pasts) > 1:
        checked.remove(len(checked.pasts) - 1)
    assert allocated() == most

    checked.append(encoded(5), [0])

    assert (allocated() <= at_first, checked.cache.has_grown) == (True, False)
    checked.check()


def test_a_load_that_comes_and_goes_allocates_nothing_new():
    checked = CheckedCache(2)
    for _ in range(3):
        checked.append(encoded(*[60] * 100), range(100))
        checked.step(own_parents(100, 2))
        memory = checked.cache.memory
        while checked.pasts:
            checked.remove(0)

    assert checked.cache.has_grown
    assert checked.cache.memory == memory
    checked.append(encoded(*[60] * 100), range(100))
    assert checked.cache.memory == memory


def test_steps_change_no_key_until_there_is_no_room_for_the_next():
    cache = CpuCache(SHAPE, 4)
    cache.append(encoded(3, 3), [0, 1])
    memory, layout = cache.memory, cache.layout
    columns = cache.self_arrays()[0].shape[2]
    for _ in range(columns // 4):
        cache.prepare()
        cache.advance(own_parents(2, 4))
        assert (cache.memory, cache.layout) == (memory, layout)
    assert cache.columns.tolist() == [columns, columns]

    cache.prepare()

    assert cache.layout != layout
    assert cache.layout[1] >= columns + 4


def test_key_is_new_when_only_the_counts_of_the_sentences_have_moved():
    """There is memory for 33 sentences, but the counts have to move: the arrays of 20 sentences are then other ones."""
    checked = CheckedCache(1)
    checked.append(encoded(*[200] * 20), range(20))
    while not checked.cache.own.has_grown:
        checked.cache.prepare()
        checked.cache.advance(own_parents(20, 1))
    memory, layout = checked.cache.memory, checked.cache.layout
    columns = checked.cache.columns.ctypes.data

    checked.cache.append(encoded(*[2] * 13), range(13))
    while checked.cache.num_sentences > 20:
        checked.cache.remove(20)

    assert checked.cache.columns.ctypes.data != columns
    assert (checked.cache.memory[:-1], checked.cache.layout) == (memory[:-1], layout)
    assert checked.cache.memory != memory
