"""Strings of an interface, cells and cries: no word gets lost, nothing comes back empty, and the punctuation stays."""

import re
from collections.abc import Mapping

import pytest

from service.records import WarningKind
from tests.fakes.scripted_model import SCRIPTS, ScriptedPipeline
from tests.text.corpus import Case
from tests.text.judging import translated
from tests.text.over_grpc import included_models

WORDS = {
    "en-de": ("the", "a", "an", "of", "s", "it", "to"),
    "de-en": ("der", "die", "das", "ein", "zu", "es", "den"),
}
CRIES = {
    "en-de": ("Come here!!!", "Why?!", "Really??", "Stop it!!", "We did it!!!!", "Are you sure?!?"),
    "de-en": ("Komm her!!!", "Warum?!", "Wirklich??", "Hört auf!!", "Wir haben es geschafft!!!!", "Bist du sicher?!?"),
}
COMMANDS = {  # string, what it has to have besides punctuation
    "en-de": (
        ("Save As...", "peicher"),
        ("Deleting %s...", "ösch"),
        ("Open {file}...", "ffne"),
        ("Loading %d...", "lad"),
        ("Page Setup...", "eite"),
        ("Searching…", "uch"),
    ),
    "de-en": (
        ("Suchen...", "earch|Find"),
        ("%s öffnen...", "pen"),
        ("Drucken...", "rint"),
        ("{file} löschen...", "elet"),
        ("Neues Fenster...", "indow"),
        ("Bitte warten…", "ait"),
    ),
}


def cases_of(texts: Mapping[str, tuple[str, ...]]) -> list[Case]:
    return [Case(text, text, languages=languages) for languages, some in texts.items() for text in some]


@pytest.mark.parametrize("script", ["says nothing", "lower case without punctuation"])
def test_a_word_comes_back_though_the_model_says_nothing(script):
    pipeline = ScriptedPipeline(SCRIPTS[script])
    cases = [*cases_of(WORDS), *cases_of(CRIES)]
    answers = translated(pipeline.translate, cases)
    pipeline.close()

    is_nothing = script == "says nothing"
    for case, answer in zip(cases, answers, strict=True):
        assert answer.text.lower() == case.text.lower()
        assert (WarningKind.EMPTY in {warning.kind for warning in answer.warnings}) is is_nothing


@pytest.mark.slow
def test_the_included_models_lose_no_word_and_no_mark(tmp_path_factory):
    commands = {languages: tuple(text for text, _ in some) for languages, some in COMMANDS.items()}
    cases = [*cases_of(WORDS), *cases_of(CRIES), *cases_of(commands)]
    with included_models(tmp_path_factory.mktemp("server")) as translate:
        answers = dict(zip([case.text for case in cases], translated(translate, cases), strict=True))

    def end(text: str) -> str:
        return text[len(text.rstrip("!?.…")) :]

    assert [text for text, answer in answers.items() if not re.search(r"\w", answer.text)] == []
    assert {text: answer.text for text, answer in answers.items() if end(answer.text) != end(text)} == {}
    lost = [
        (text, answers[text].text)
        for some in COMMANDS.values()
        for text, word in some
        if not re.search(word, answers[text].text)
    ]
    assert lost == []
