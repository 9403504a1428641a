r"""A segment as a model reads it best, and its translation as the segment was written.

    soft hyphens and zero-width characters        are taken out, but where a script needs them
    "sooooooo", "hahahahaha"                      become "sooo", "hahaha"
    "You\'ve", "It''s" in strings of programs     become "You've", "It's"; `spelled` writes a translation as they were
    `Buy now!!!`, `What?!`, `Save As...`          go without their runs of marks; `as_in_source` writes them again
    THE CATS ARE SLEEPING                         goes as "The cats are sleeping"; `raise_case` writes capitals again

Models learn little from capitals, which are a heap of odd pieces to them (figures: docs/text.md), and shorten or
lengthen runs of punctuation.  No-break spaces, which they turn into ordinary ones, come back between words that a
translation has kept.  What is a span stays.  In linear time; knows no model but a callable that counts tokens.
"""

import re
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Sequence

from service.records import Link, Span
from service.text.alignment import edited, moved
from service.text.languages import letters
from service.text.protected_spans import Alphabet, spans_of
from service.text.segments import Segment

_HIDDEN = "\u00ad\u034f\u2060-\u2064"
_JOINERS = "\u200b-\u200f\u202a-\u202e\ufeff"  # the scripts of Asia and Africa, and pictures, need them
_WITH_JOINERS = "\u0590-\u1dff\u2e80-\U0003ffff"
_UNREADABLE = re.compile(
    rf"[{_HIDDEN}]++|(?<![{_WITH_JOINERS}])[{_JOINERS}]++(?![{_WITH_JOINERS}])"
    r"|(?!\b[A-Z]{4,}\b)(?P<letter>[^\W\d_])(?P=letter){3,}|(?P<syllable>[^\W\d_]{2})(?P=syllable){3,}"
    r"|(?P<quote>\\[\"']|(?<=[^\W\d_])''(?=[^\W\d_]))"
)
# A text without these signs, "''" and repetition is readable, which is found out in a quarter of the time.
_UNREADABLE_SIGN = re.compile(rf"[{_HIDDEN}{_JOINERS}\\]")
_REPEATED = re.compile(r"(\w\w?)\1\1\1")
_TIMES = 3  # as often a letter or a syllable stays: "Schifffahrt"


def readable(segment: Segment, alphabet: Alphabet) -> Segment:
    """Return the segment with a text that the model reads better; each code point keeps its place in the request."""
    text = segment.text
    if not ("''" in text or _UNREADABLE_SIGN.search(text) or _REPEATED.search(text)):
        return segment
    spans = [
        span for span in spans_of(segment, alphabet) if segment.text[slice(*span)] != "\\"
    ]  # a lone one: a quote's
    taken = {place for span in spans for place in range(*span)}
    pieces, places, quotes, end = list[str](), list[int](), dict[str, None](), 0
    for match in _UNREADABLE.finditer(segment.text):
        if match.start() in taken:
            continue
        written = match["quote"][-1:] if match["quote"] else _TIMES * (match["letter"] or match["syllable"] or "")
        quotes |= {match[0]: None} if match["quote"] else {}
        pieces += segment.text[end : match.start()], written
        places += [*range(end, match.start()), *range(match.start(), match.start() + len(written))]
        end = match.end()
    text = "".join((*pieces, segment.text[end:]))
    places += range(end, len(segment.text))
    first = len(text) - len(text.lstrip())
    text = text.strip()
    places = places[first : first + len(text)]
    offsets = segment.offsets or range(segment.begin, segment.begin + len(segment.text))
    return segment._replace(
        text=text,
        offsets=tuple([offsets[place] for place in places]),
        tags=tuple([tag._replace(position=bisect_left(places, tag.position)) for tag in segment.tags]),
        quotes=tuple(quotes),
    )


def spelled(segment: Segment, target: str, links: Sequence[Link]) -> tuple[str, Sequence[Link]]:
    r"""Return a translation with its quotes as the segment writes them, be it "\'" or "''", and its links."""
    written = {quote[-1]: quote for quote in segment.quotes}
    taken = {place for span in segment.copies(target) for place in range(*span)}
    edits = [
        (Span(place, place + 1), written[character])
        for place, character in enumerate(target)
        if character in written and place not in taken
    ]
    done = edited(target, edits)
    return done.text, moved(links, target=done.moved)


_CLOSING = "\"'”’“‘»«)\\]"
_RUN = re.compile(rf"([!?.…]{{2,}}+|…|-{{2,}}+)([{_CLOSING}]*+)\Z")
_END = re.compile(rf"[\s!?.…。！？-]++([{_CLOSING}]*+)\Z")
_DASHES, _DASH = re.compile(r"(?<=\s)--(?=\s)"), re.compile(r"(?<=\s)–(?=\s)")
_MARK, _NUMBER_MARK = re.compile(r"[,;:.!?](?=\s)"), re.compile(r"\d{1,20}+[,;:](?=\s)")
_LONGEST = 60  # characters of a run with what closes behind it


def eased(text: str, spans: Sequence[Span] = (), *, has_tags: bool = False) -> str:
    """Return a text as models read it best: without the points that end it, with one mark for a run, – for --.

    Places stay, but behind a --, which stays beside spans and tags.
    """
    run = _run(text, spans)
    if run and not run[2] and (words := text[: run.start()].rstrip()):
        text = words + ("?" if "?" in run[1] else "!" if "!" in run[1] else "")
    return _DASHES.sub("–", text) if _has_dashes(text) and not (spans or has_tags) else text


def as_in_source(
    source: str,
    target: str,
    links: Sequence[Link],
    spans: Sequence[Span] = (),
    *,
    has_tags: bool = False,
    kept: Sequence[str] = (),
) -> tuple[str, Sequence[Link]]:
    """Return the translation of an eased text with the run at its end, dashes and spaces behind marks of its source."""
    if run := _run(source, spans):
        end = _END.search(target, max(0, len(target) - _LONGEST))
        closing = end[1] if end else ""
        words = target[: end.start()] if end else target
        space = " " if run[1][0] == "-" and source[: run.start()][-1:].isspace() else ""
        changed = f"{words}{space}{run[1]}{closing}"
        if words.strip() and (closing or not run[2]) and all(changed.count(one) == target.count(one) for one in kept):
            target = changed
    if not (spans or has_tags) and _has_dashes(source):
        read = edited(source, [(Span(*match.span()), "–") for match in _DASHES.finditer(source)])
        given = edited(target, [(Span(*match.span()), "--") for match in _DASH.finditer(target)])
        target, links = given.text, moved(links, read.origin, given.moved)
    elif places := _glued(source, target, spans):
        given = edited(target, [(Span(place, place), " ") for place in places])
        target, links = given.text, moved(links, target=given.moved)
    return target, [link for link in links if link.target.end <= len(target)] if links else links


def _glued(source: str, target: str, spans: Sequence[Span]) -> list[int]:
    """Return where a translation lacks the space behind the mark of a span or a number that the source has there."""
    marked = set(_NUMBER_MARK.findall(source))
    if spans:
        marked |= {source[span.begin : mark.end()] for span in spans if (mark := _MARK.match(source, span.end))}
    if not marked:
        return []
    return [match.end() for match in re.finditer(f"(?:{'|'.join(map(re.escape, marked))})(?=[^\\W\\d_])", target)]


def _has_dashes(text: str) -> bool:
    return "--" in text and "–" not in text and _DASHES.search(text) is not None


def _run(text: str, spans: Sequence[Span]) -> re.Match[str] | None:
    """Return the run at the end of a text, and what closes behind it, unless it is part of a span."""
    run = _RUN.search(text, max(0, len(text) - _LONGEST)) if text[-1:] in "!?.…-\"'”’“‘»«)]" else None
    return None if run is None or (spans and spans[-1].end > run.start()) else run


_NO_BREAKS = "\u00a0\u2007\u202f"
_NO_BREAK = re.compile(rf"(?<=\S)([{_NO_BREAKS}])(?=\S)")
_SPACES = re.compile(r"(?<=\S) (?=\S)")
_REACH = 40  # characters of a neighbour that are compared
_DIGITS = re.compile(r"\D+")


def with_no_break_spaces(source: str, target: str) -> str:
    """Return a translation with the no-break spaces of its source; its length does not change.

    One stands between the same two words, behind the same number ("10 kg"), or else before the same number or name
    ("§ 5", "Mr. Miller").  Where neither neighbour is there any more, the space stays an ordinary one.
    """
    if source.isascii() or not any(space in source for space in _NO_BREAKS):
        return target
    places = defaultdict[tuple[str, str], deque[int]](deque)
    for space in _SPACES.finditer(target):
        for key in _keys(*_neighbours(target, space.start())):
            places[key].append(space.start())
    characters = list(target)
    for space in _NO_BREAK.finditer(source):
        for key in _keys(*_neighbours(source, space.start())):
            free = places[key]
            while free and characters[free[0]] != " ":
                free.popleft()
            if free:
                characters[free.popleft()] = space[1]
                break
    return "".join(characters)


def _neighbours(text: str, place: int) -> tuple[str, str]:
    """Return the words before and behind the space there."""
    before, behind = text[max(0, place - _REACH) : place], text[place + 1 : place + 1 + _REACH]
    return before.split()[-1], behind.split()[0]


def _keys(before: str, behind: str) -> list[tuple[str, str]]:
    """Return what may be equal of a space in the source and one in the translation, the surest first."""
    before, behind = before.strip("(\"'„“»«"), behind.strip(".,;:!?)\"'“”»«")
    keys = [(before, behind)]
    if before.rstrip(".,)")[-1:].isdigit() and (digits := _DIGITS.sub("", before)):
        keys.append((digits, ""))
    if behind[:1].isupper() or behind[:1].isdigit():
        keys.append(("", behind))
    return keys


_LONG_WORD = 4  # letters; shorter ones alone are abbreviations: "LED TV"
_WORD = re.compile(r"\w+(?:['\u2019]\w+)*")
_LETTERS = re.compile(r"[^\W\d_]+")
_BEGIN = re.compile(r"[\"'„“”‚‘’«»‹›(¿¡]*+([^\W\d_]++)(?![.\w])")  # not of "z.B."
_FEW_WORDS = 3
_STOPS = ".!?"
_ALWAYS_CAPITAL = {
    "de": frozenset({"Sie", "Ihnen", "Ihr", "Ihre", "Ihrem", "Ihren", "Ihrer", "Ihres"}),
    "en": frozenset("I"),
}
_TURKIC = ("tr", "az")  # their i has a dot in both cases


def is_capitals(text: str) -> bool:
    """Whether the text is written in capitals; "LED TV" and the like are abbreviations."""
    if not text.isupper():  # what has no case, as digits and Chinese, is no obstacle
        return False
    found = letters(text)
    cased = sum(letter.isupper() for letter in found)
    return 2 * cased > len(found) and any(len(word) >= _LONG_WORD for word in _WORD.findall(text) if word.isalpha())


def recase(text: str, count_tokens: Callable[[str], int], *, language: str = "", spans: Sequence[Span] = ()) -> str:
    """Return a text in capitals as a sentence: every word as the tokenizer knows it best, the first with a capital.

    Of "katze", "Katze" and "KATZE" that with the fewest tokens is taken: so German nouns and abbreviations keep their
    capitals.  Every code point keeps its place; words with digits, and the spans, stay as they are.
    """
    is_first = True

    def one_word(match: re.Match[str]) -> str:
        nonlocal is_first
        word = match[0]
        if any(span.begin < match.end() and match.start() < span.end for span in spans):
            is_first = False
            return word
        began, is_first = is_first, False
        lower = _lower(word, language)
        if len(lower) != len(word) or not word.replace("'", "").replace("\u2019", "").isalpha():
            return word
        if word == "I" and language[:2].lower() == "en":
            return word
        title = word[0] + lower[1:]
        choices = (title, word) if began else (lower, title, word)
        return min(choices, key=count_tokens)  # the first of equals

    return _WORD.sub(one_word, text)


def raise_case(text: str, *, language: str = "", kept: Sequence[str] = ()) -> str:
    """Return a translation in capitals, but what is to be kept as it is: "%s" must not become "%S"."""
    if not kept:
        return _upper(text, language)
    pattern = re.compile("|".join(re.escape(part) for part in sorted(kept, key=len, reverse=True)))
    raised, end = [], 0
    for match in pattern.finditer(text):
        raised += [_upper(text[end : match.start()], language), match[0]]
        end = match.end()
    return "".join([*raised, _upper(text[end:], language)])


def go_on(source: str, target: str, count_tokens: Callable[[str], int], *, language: str = "") -> str:
    """Return the translation of a piece of a sentence without what the model, which took it for a whole one, has added.

    That is a capital at the beginning where the source goes on in lower case, unless the tokenizer knows the word best
    with it, as German nouns, and a full stop that the source does not have.
    """
    if target[-1:] in _STOPS and source[-1:] not in _STOPS and target.rstrip(_STOPS):
        target = target.rstrip(_STOPS)
    word = _LETTERS.match(target)
    if word is None or not (source[:1].islower() and target[:1].isupper()):
        return target
    lower = _lower(word[0], language)
    is_capital = word[0] in _ALWAYS_CAPITAL.get(language[:2].lower(), ()) or (len(word[0]) > 1 and word[0].isupper())
    if is_capital or count_tokens(word[0]) < count_tokens(lower):
        return target
    return lower + target[word.end() :]


def begun_as_in_source(
    source: str, target: str, *, languages: tuple[str, str] = ("", ""), kept: Sequence[str] = ()
) -> str:
    """Return a translation, of the same length, that begins with a capital where its source does.

    One or two words of German may be nouns with a capital, so that the translation needs none.
    """
    word, first = _BEGIN.match(target), _BEGIN.match(source)
    if word is None or first is None or not (word[1].islower() and first[1][0].isupper()):
        return target
    if languages[0][:2].lower() == "de" and len(source.split()) < _FEW_WORDS:
        return target
    begin, letter = word.start(1), _upper(word[1][0], languages[1])
    if len(letter) != 1 or any(target.startswith(one, begin) for one in kept):
        return target
    return target[:begin] + letter + target[begin + 1 :]


def _upper(text: str, language: str) -> str:
    return (text.replace("i", "\u0130") if language[:2].lower() in _TURKIC else text).upper()


def _lower(word: str, language: str) -> str:
    if language[:2].lower() in _TURKIC:
        word = word.replace("I", "\u0131").replace("\u0130", "i")
    return word.lower()
