"""The included models, over gRPC: the conditions hold of every case, and what used to be damaged is whole."""

import re
from collections.abc import Iterator

import pytest

from service.records import TextFormat
from tests.text.corpus import all_cases
from tests.text.judging import Translate, problems, translated
from tests.text.over_grpc import included_models
from tests.text.reported import REPORTED

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def translate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Translate]:
    with included_models(tmp_path_factory.mktemp("server")) as translate:
        yield translate


@pytest.mark.parametrize("text_format", TextFormat)
def test_all_conditions_hold_of_all_cases(translate, text_format):
    cases = [case for case in all_cases() if case.format is text_format]

    assert problems(cases, translated(translate, cases)) == {}


def test_no_code_gets_lost_without_a_warning(translate):
    cases = [case for case in all_cases() if case.codes]
    answers = translated(translate, cases)

    assert {
        case.text: answer.text
        for case, answer in zip(cases, answers, strict=True)
        if not answer.warnings and any(count(code, answer.text) < count(code, case.text) for code in case.codes)
    } == {}


def count(code: str, text: str) -> int:
    return len(re.findall(rf"(?<![^\W_]){re.escape(code)}(?![^\W_])", text))


@pytest.mark.parametrize("row", REPORTED, ids=lambda row: row.case.name)
def test_a_text_that_used_to_be_damaged_is_whole(translate, row):
    (answer,) = translated(translate, [row.case])

    assert problems([row.case], [answer]) == {}
    assert row.is_right(answer.text), answer.text
