"""More pairs from the same text: which wording is taken, and that the corpus can be read back."""

import gzip
import json

import pytest
from typer.testing import CliRunner

import model.tools.diversify
from model.corpus import Pair, read_corpus
from model.recipe import CorpusConfig, Languages
from model.tools.diversify import new_wording, write_corpus

KNOWN = ["The ship is bound for Finland."]


SHIP, VESSEL = "The ship is going to Finland.", "This vessel goes there."


@pytest.mark.parametrize(
    ("hypotheses", "known", "min_chrf", "taken"),
    [
        (["A vessel goes north.", SHIP, "Finland!"], KNOWN, 0, SHIP),  # the nearest
        ([SHIP, VESSEL], [*KNOWN, "The vessel goes there."], 0, VESSEL),  # to any reference
        ([SHIP, KNOWN[0]], KNOWN, 0, None),  # the model knows the reference
        ([SHIP], KNOWN, 40, SHIP),
        ([SHIP], KNOWN, 90, None),  # too far
    ],
)
def test_the_hypothesis_nearest_to_a_reference_is_taken(hypotheses, known, min_chrf, taken):
    assert new_wording(hypotheses, known, min_chrf) == taken


@pytest.fixture
def data(tmp_path):
    corpus = tmp_path / "train" / "small"
    write_corpus(
        corpus,
        [Pair("Das Schiff fährt nach Finnland.", KNOWN[0]), Pair("Ja.", "Yes.")],
        Languages(source="de", target="en"),
    )
    return tmp_path


def run(said, data, out) -> tuple[int, str]:
    arguments = [said, "--data", data, "--corpus", "small", "--from", "de", "--to", "en", "--out", out]
    result = CliRunner().invoke(
        model.tools.diversify.app, [*map(str, arguments), "--min-chrf", "40"], env={"COLUMNS": "300", "TERM": "dumb"}
    )
    return result.exit_code, result.output


def answer(source: str, *hypotheses: str) -> str:
    return json.dumps({"source": source, "hypotheses": [{"text": text, "score": -1.0} for text in hypotheses]})


def test_command_makes_a_corpus_of_answers(tmp_path, data):
    said = tmp_path / "said.jsonl.gz"
    lines = [answer("Das Schiff fährt nach Finnland.", "The ship is going to Finland.")] * 2  # two lines of a corpus
    said.write_bytes(gzip.compress("\n".join([*lines, answer("Ja.", "Yes."), answer("")]).encode()))

    code, printed = run(said, data, data / "train" / "more")

    assert code == 0, printed
    assert "1 new pairs of 2 sentences" in " ".join(printed.split())
    corpus = read_corpus(data, CorpusConfig(name="more"), Languages(source="en", target="de"), seed=1)
    assert corpus == [Pair("The ship is going to Finland.", "Das Schiff fährt nach Finnland.")]
