"""How well sentences are found: precision and recall of their ends, beside other splitters.

    python bench/quality/sentence_boundaries.py               # ours, and those of the others that are installed
    python bench/quality/sentence_boundaries.py --wrong       # and where ours are wrong
    pip install pysbd syntok SoMaJo                           # the others; sentencex is there

`sentence_boundaries.tsv` has a language, a kind and a text in each line, all written for this purpose; " | " stands
where a sentence ends.  A decision is a place where a mark and white space, or one of the splitters, could end one.
Pictures between two sentences belong to either.
"""

import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from service.text.sentence_boundaries import sentence_begins

FILE = Path(__file__).with_name("sentence_boundaries.tsv")
_PLACES = re.compile(r"[.!?…][^\s\w]*\s+(?=\S)")
_PICTURES = re.compile(r"(?:[\U0001f000-\U0001faff]\s*)*")

Splitter = Callable[[str, str], list[str]]  # language, text -> sentences


class Text(NamedTuple):
    """A text and where its sentences begin, but the first."""

    language: str
    kind: str
    text: str
    begins: frozenset[int]


class Rates(NamedTuple):
    """Of the decisions on some texts."""

    decisions: int
    right: int  # ends that are there and were found
    found: int
    real: int

    @property
    def precision(self) -> float:
        return self.right / self.found

    @property
    def recall(self) -> float:
        return self.right / self.real


def read() -> list[Text]:
    """Return the texts of the file."""
    return [_text(*line.split("\t")) for line in FILE.read_text("utf-8").splitlines()]


def _text(language: str, kind: str, marked: str) -> Text:
    sentences = marked.split(" | ")
    text = " ".join(sentences)
    return Text(language, kind, text, _begins(text, sentences))


def _begins(text: str, sentences: Iterable[str]) -> frozenset[int]:
    """Return where the sentences begin in a text, in which they follow each other, but the first."""
    begins, place = set[int](), 0
    for sentence in map(str.strip, sentences):
        begin = text.index(sentence, place)
        place = begin + len(sentence)
        begins.add(_behind_pictures(text, begin))
    return frozenset(begins - {0, len(text)})


def _behind_pictures(text: str, place: int) -> int:
    pictures = _PICTURES.match(text, place)
    return pictures.end() if pictures else place


def rates(texts: Iterable[Text], split: Splitter) -> Rates:
    """Return how a splitter decides on texts."""
    total = [0, 0, 0, 0]
    for text in texts:
        found = _begins(text.text, split(text.language, text.text))
        places = {_behind_pictures(text.text, match.end()) for match in _PLACES.finditer(text.text)} - {len(text.text)}
        counts = len(places | found | text.begins), len(found & text.begins), len(found), len(text.begins)
        total = [one + other for one, other in zip(total, counts, strict=True)]
    return Rates(*total)


def ours(language: str, text: str) -> list[str]:
    """Return the sentences as the server finds them."""
    places = [0, *sentence_begins(text, language), len(text)]
    return [text[begin:end] for begin, end in pairwise(places)]


def _sentencex(language: str, text: str) -> list[str]:
    return list(_module("sentencex").segment(language, text))


def _pysbd(language: str, text: str) -> list[str]:
    return list(_segmenter(language).segment(text))


@cache
def _segmenter(language: str) -> Any:
    return _module("pysbd").Segmenter(language=language, clean=False)


def _syntok(_language: str, text: str) -> list[str]:
    paragraphs = _module("syntok.segmenter").process(text)
    sentences = [sentence for paragraph in paragraphs for sentence in paragraph]
    return [text[one[0].offset : one[-1].offset + len(one[-1].value)] for one in sentences]


def _somajo(language: str, text: str) -> list[str]:
    sentences = _tokenizer(language).tokenize_text([text])
    return [text[one[0].character_offset[0] : one[-1].character_offset[1]] for one in sentences]


@cache
def _tokenizer(language: str) -> Any:
    model = {"de": "de_CMC", "en": "en_PTB"}[language]
    return _module("somajo").SoMaJo(model, split_camel_case=False, character_offsets=True)


def _module(name: str) -> Any:
    return importlib.import_module(name)


OTHERS: dict[str, Splitter] = {"sentencex": _sentencex, "pysbd": _pysbd, "syntok": _syntok, "somajo": _somajo}


def main(wrong: Annotated[bool, typer.Option(help="Print the texts in which ours are wrong.")] = False) -> None:
    """Print precision and recall of each splitter."""
    texts = read()
    splitters = {"ours": ours} | {name: one for name, one in OTHERS.items() if importlib.util.find_spec(name)}
    report = {}
    print("| splitter | language | decisions | precision | recall | wrong |\n| --- | --- | --- | --- | --- | --- |")
    for name, split in splitters.items():
        for language in ("en", "de"):
            found = rates([text for text in texts if text.language == language], split)
            num_wrong = found.found + found.real - 2 * found.right
            shares = f"{found.precision:.3f} | {found.recall:.3f}"
            print(f"| {name} | {language} | {found.decisions} | {shares} | {num_wrong} |")
            report[f"{name} {language}"] = [round(found.precision, 4), round(found.recall, 4)]
    for text in texts if wrong else ():
        if _begins(text.text, ours(text.language, text.text)) != text.begins:
            print(f"{text.language} {text.kind}: {' | '.join(ours(text.language, text.text))}")
    print(json.dumps(report))


if __name__ == "__main__":
    typer.run(main)
