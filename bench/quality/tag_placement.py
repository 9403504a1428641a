"""Share of inline tags that stand around the right words in a bundle's translations.

    python bench/quality/tag_placement.py                      # of the included English - German bundle
    python bench/quality/tag_placement.py --bundle BUNDLE      # of another one
    python bench/quality/tag_placement.py --wrong              # and those that stand elsewhere

`tag_placement.tsv` holds 200 English texts with inline tags, aligned by hand.  After the text come, for each start tag
and each tag that stands alone, in order, the places that are right, separated by "|":

    rotes Auto    a pair around these words; marks and cases do not count
    *             around the whole text
    ~             around whatever: the models leave these words out
    >Wort         right before this word
    Wort<         right behind it
    ^             at the beginning
"""

import html
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model.bundle import default_bundle_dir
from service.local import LocalTranslator
from service.records import TextFormat, TranslationRequest

CASES = Path(__file__).with_name("tag_placement.tsv")
KEPT = "code|kbd|var|span class=.notranslate.|span translate=.no."  # elements that come back as they are
_TAG = re.compile(rf"<(?P<kept>{KEPT})>.*?</\w+>|<!--.*?-->|<(?P<end>/?)(?P<name>\w+)[^>]*>")
_ALONE = ("br", "img")


class Place(NamedTuple):
    """A tag and the words of the text around it."""

    source: str
    begin: int  # words before the tag
    end: int  # words before its end tag


def words_and_places(text: str) -> tuple[list[str], list[Place]]:
    """Return the words of a text, without marks and in lower case, and the places of its tags in their order."""
    words: list[str] = []
    places: list[Place] = []
    open_tags: list[int] = []
    end = 0
    for tag in _TAG.finditer(text):
        words += _words(text[end : tag.start()])
        end = tag.end()
        if tag["end"]:
            index = open_tags.pop()
            places[index] = places[index]._replace(end=len(words))
            continue
        if tag["name"] and tag["name"] not in _ALONE:
            open_tags.append(len(places))
        places.append(Place(tag[0], len(words), len(words)))
    return words + _words(text[end:]), places


def _words(text: str) -> list[str]:
    return re.findall(r"\w+(?:[.,]\w+)*", html.unescape(text).casefold())


def is_right(words: Sequence[str], place: Place, right: str) -> bool:
    """Whether a tag stands at one of the places that are right."""
    return any(_fits(words, place, one) for one in right.split("|"))


def _fits(words: Sequence[str], place: Place, right: str) -> bool:
    if right in ("~", "^"):
        return right == "~" or place.begin == 0
    if right == "*":
        return (place.begin, place.end) == (0, len(words))
    wanted = _words(right)
    if right.startswith(">"):
        return list(words[place.end : place.end + len(wanted)]) == wanted
    if right.endswith("<"):
        return list(words[max(0, place.begin - len(wanted)) : place.begin]) == wanted
    return list(words[place.begin : place.end]) == wanted


def main(
    bundle: Annotated[Path | None, typer.Option(help="A bundle from English to German.")] = None,
    wrong: Annotated[bool, typer.Option(help="Print the texts with tags that stand elsewhere.")] = False,
) -> None:
    """Print how many tags stand right, and how many texts have all of them right."""
    cases = [line.split("\t") for line in CASES.read_text("utf-8").splitlines()]
    translator = LocalTranslator.open(bundle or default_bundle_dir(), threads=1)
    request = TranslationRequest(format=TextFormat.HTML)
    results = translator.translate_all([text for text, *_ in cases], request=request)
    num_tags = num_right = num_texts = 0
    for (text, *rights), result in zip(cases, results, strict=True):
        words, places = words_and_places(result.text)
        order = [place.source for place in words_and_places(text)[1] if place.source != "<p>"]
        by_source = sorted(
            (place for place in places if place.source != "<p>"), key=lambda one: order.index(one.source)
        )
        fits = [is_right(words, place, right) for place, right in zip(by_source, rights, strict=True)]
        num_tags, num_right, num_texts = num_tags + len(fits), num_right + sum(fits), num_texts + all(fits)
        if wrong and not all(fits):
            print(f"{text}\n    {result.text}\n    {rights}")
    share = num_right / num_tags
    print(f"{num_right} of {num_tags} tags stand right ({share:.1%}); all of them in {num_texts} of {len(cases)} texts")
    print(json.dumps({"texts": len(cases), "tags": num_tags, "right": num_right, "texts_right": num_texts}))


if __name__ == "__main__":
    typer.run(main)
