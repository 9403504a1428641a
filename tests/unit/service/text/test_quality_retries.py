"""Which way a segment is translated again, and which of two translations is kept."""

import pytest

from service.engine.wire import SearchParams
from service.records import WarningKind
from service.text.quality import Attempt, Retry, better, safer

PLAIN = SearchParams(max_target_tokens=64)
NO_LOOPS = PLAIN._replace(no_repeat_ngram_size=3)
SENTENCE = "The children of the village play in the garden every day."


@pytest.mark.parametrize(
    ("kinds", "params", "expected"),
    [
        ([], PLAIN, None),
        ([WarningKind.COPIED], PLAIN, None),
        ([WarningKind.WRONG_SCRIPT], PLAIN, None),
        ([WarningKind.TERM_MISSED, WarningKind.SPLIT], PLAIN, None),
        ([WarningKind.REPETITION], PLAIN, Retry(NO_LOOPS)),
        ([WarningKind.TRUNCATED, WarningKind.REPETITION], PLAIN, Retry(NO_LOOPS)),
        ([WarningKind.REPETITION], PLAIN._replace(no_repeat_ngram_size=5), Retry(NO_LOOPS)),
        ([WarningKind.REPETITION], NO_LOOPS, Retry(NO_LOOPS, in_pieces=True)),
        ([WarningKind.LENGTH_RATIO], PLAIN, Retry(PLAIN, in_pieces=True)),
        ([WarningKind.LOW_COVERAGE], PLAIN, Retry(PLAIN, in_pieces=True)),
        ([WarningKind.EMPTY], PLAIN, Retry(PLAIN, in_pieces=True)),
        ([WarningKind.TRUNCATED], PLAIN, Retry(PLAIN, in_pieces=True)),
    ],
)
def test_each_issue_has_its_remedy(kinds, params, expected):
    assert safer(SENTENCE, [(kind, "") for kind in kinds], params) == expected


def test_a_short_text_is_not_cut():
    assert safer("The children play here.", [(WarningKind.LENGTH_RATIO, "")], PLAIN) is None


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (Attempt([(WarningKind.COPIED, "")], -0.1), Attempt([], -2.0), True),
        (Attempt([(WarningKind.LENGTH_RATIO, "")], -1.0), Attempt([(WarningKind.EMPTY, "")], -0.1), False),
        (Attempt([], -0.5, 0.9), Attempt([], -0.6, 0.95), True),
        (Attempt([], -0.5, 0.9), Attempt([], -0.4, 0.9), True),
        (Attempt([], -0.5, 0.9), Attempt([], -0.4), True),
        (Attempt([], -0.5), Attempt([], -0.5), False),  # the first is kept
        (Attempt([(WarningKind.UNKNOWN_CHARACTERS, "")], -0.5), Attempt([], -0.9), True),
    ],
)
def test_fewer_issues_go_before_coverage_and_coverage_before_score(first, second, expected):
    assert better(first, second) is expected
