"""Training pairs made more like the text that people write: each change is drawn for a share of the pairs.

A change keeps a pair a translation: it is made on both sides, or it damages the source alone, whose translation stays.
Knows text and recipes; neither tokenizer nor model.
"""

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from model.corpus import Pair
from model.pieces import CONTROL_TO_SPACE, SENTINELS
from model.recipe import AugmentationConfig

_ADDRESS = r"(?:https?://|www\.)[^\s<>\")]*[\w/]|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
_PLACEHOLDER = r"%(?:\d+\$)?[-.\d]*[sdif@]|%\(\w+\)[sd]|\$?\{+[^{}]*\}+|&\w+;|\$\w+"
_TAG = r"</?\w[^<>]*>"
_CODE = r"`[^`]+`|[\w./\\-]*[_/\\][\w./\\-]*\w"
_NUMBER = r"\d+(?:[.,:/-]\d+)*"
_NAME = r"[A-ZÄÖÜ][\w-]+(?: [A-ZÄÖÜ][\w-]+)*"
_SPAN = re.compile(f"{_ADDRESS}|{_PLACEHOLDER}|{_TAG}|{_CODE}|{_NUMBER}|{_NAME}")
_WORD = re.compile(r"[^\W\d_]{4,}")
_SPELLED_OUT = {"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "'": "", "’": "", ",": ""}
_EMOJI_RANGES = ((0x1F600, 0x1F64F), (0x1F300, 0x1F5FF), (0x1F680, 0x1F6C5), (0x1F90D, 0x1F9FF), (0x2600, 0x27BF))
_COMMON_EMOJI = ("😀", "😂", "😉", "😍", "😊", "😢", "👍", "🙏", "🎉", "❤️", "👩‍💻", "🇩🇪", "👍🏽", "☀️", "🔥", "✅")
_BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"), ("<", ">"), ('"', '"'), ("“", "”"), ("«", "»"))
_MARKS = ("*", "_", "|", "`", "~", "**", "__", "``", "~~")
_LINE_STARTS = ("- ", "* ", "# ", "> ", "• ", "1. ", "a) ", "| ", "→ ", "@ ", "$ ", "& ", "§ ")


def augment(
    pairs: Sequence[Pair], config: AugmentationConfig, seed: int, following: Mapping[Pair, Pair] | None = None
) -> Iterator[Pair]:
    """Yield the pairs in their order, some of them changed; the same seed changes the same ones.

    Args:
        pairs: what an epoch trains on.
        config: the share of each change.
        seed: of all draws.
        following: the next pair of those that stand in a document; others are joined with the next of `pairs`.
    """
    rng = random.Random(seed)
    edits: list[tuple[float, Callable[[Pair, random.Random], Pair]]] = [
        (config.drop_final_punctuation, drop_final_punctuation),
        (config.typos, misspell),
        (config.lowercase_source, lowercase_source),
        (config.uppercase, uppercase),
        (config.emoji, add_emoji),
        (config.brackets, add_brackets),
    ]
    for number, pair in enumerate(pairs):
        joined = [pair]
        if rng.random() < config.concatenate:
            joined = neighbours(pairs, number, rng.choice((2, 2, 3, 4)), following or {})
        sentinels = iter(_turned(SENTINELS, rng)) if config.sentinels or config.tags else iter(())
        if config.sentinels or config.tags:
            joined = [Pair(*(side.translate(CONTROL_TO_SPACE) for side in sentence)) for sentence in joined]
        if rng.random() < config.tags:
            index = rng.randrange(len(joined))
            joined[index] = add_tag(joined[index], sentinels, rng)
        changed = Pair(*map(" ".join, zip(*joined, strict=True)))
        for share, edit in edits:
            if rng.random() < share:
                changed = edit(changed, rng)
        yield replace_spans(changed, sentinels, rng) if rng.random() < config.sentinels else changed


def neighbours(pairs: Sequence[Pair], number: int, count: int, following: Mapping[Pair, Pair]) -> list[Pair]:
    """Return a pair and those after it: in its document where that goes on, else in `pairs`."""
    found = [pairs[number]]
    for step in range(1, count):
        found.append(following.get(found[-1]) or pairs[(number + step) % len(pairs)])
    return found


def drop_final_punctuation(pair: Pair, rng: random.Random) -> Pair:  # noqa: ARG001  # every edit takes one
    """Take the final punctuation from both sides."""
    return Pair(*(side.rstrip(".!?") for side in pair))


def lowercase_source(pair: Pair, rng: random.Random) -> Pair:  # noqa: ARG001  # every edit takes one
    """Write the source in lower case."""
    return Pair(pair.source.lower(), pair.target)


def uppercase(pair: Pair, rng: random.Random) -> Pair:  # noqa: ARG001  # every edit takes one
    """Write both sides in capitals."""
    return Pair(*(side.upper() for side in pair))


def misspell(pair: Pair, rng: random.Random) -> Pair:
    """Make a mistake or two in the source: letters swapped, lost or doubled, signs left out, a space before a sign."""
    source = pair.source
    for _ in range(rng.choice((1, 1, 2))):
        source = rng.choice((_mistype, _mistype, _leave_out, _space_out))(source, rng)
    return Pair(source, pair.target)


def _mistype(text: str, rng: random.Random) -> str:
    words = list(_WORD.finditer(text))
    if not words:
        return text
    word = rng.choice(words)
    at = rng.randrange(word.start() + 1, word.end() - 1)
    here, after = text[at], text[at + 1]
    return text[:at] + rng.choice((after + here, after, here + here + after)) + text[at + 2 :]


def _leave_out(text: str, rng: random.Random) -> str:
    found = [at for at, character in enumerate(text) if character in _SPELLED_OUT]
    if not found:
        return text[:1].lower() + text[1:]
    at = rng.choice(found)
    return text[:at] + _SPELLED_OUT[text[at]] + text[at + 1 :]


def _space_out(text: str, rng: random.Random) -> str:  # noqa: ARG001  # every edit takes one
    return re.sub(r"(?<=\w)([,.!?;:])(?=\s|$)", r" \1", text, count=2)


def add_emoji(pair: Pair, rng: random.Random) -> Pair:
    """Put the same one to three pictures behind both sides, or in front."""
    low, high = rng.choice(_EMOJI_RANGES)
    emoji = rng.choice(_COMMON_EMOJI) if rng.random() < 0.4 else chr(rng.randint(low, high))
    emoji *= rng.choice((1, 1, 1, 2, 3))
    blank = rng.choice((" ", " ", ""))
    if rng.random() < 0.2:
        return Pair(*(f"{emoji} {side}" for side in pair))
    return Pair(*(f"{side}{blank}{emoji}" for side in pair))


def add_brackets(pair: Pair, rng: random.Random) -> Pair:
    """Put both sides in the same brackets, or the same sign in front of them."""
    if rng.random() < 0.4:
        start = rng.choice(_LINE_STARTS)
        return Pair(*(start + side for side in pair))
    mark = rng.choice(_MARKS)
    opening, closing = rng.choice((*_BRACKETS, ("{{", "}}"), (mark, mark), (mark, mark)))
    return Pair(*(opening + side + closing for side in pair))


def add_tag(pair: Pair, sentinels: Iterator[str], rng: random.Random) -> Pair:
    """Put a pair of sentinels around both sides or around a span that both have, or a single one in front or behind."""
    spans = shared_spans(pair)
    if spans and rng.random() < 0.6:
        span, opening, closing = rng.choice(spans), next(sentinels), next(sentinels)
        return Pair(*(_replace_once(side, span, opening + span + closing) for side in pair))
    if rng.random() < 0.5:
        opening, closing = next(sentinels), next(sentinels)
        return Pair(*(opening + side + closing for side in pair))
    tag, blank = next(sentinels), rng.choice((" ", ""))
    if rng.random() < 0.5:
        return Pair(*(tag + blank + side for side in pair))
    return Pair(*(side + blank + tag for side in pair))


def replace_spans(pair: Pair, sentinels: Iterator[str], rng: random.Random) -> Pair:
    """Replace most of the spans that both sides have by sentinels, in the order of the source."""
    for span in shared_spans(pair):
        if rng.random() < 0.8 and (sentinel := next(sentinels, None)):
            pair = Pair(*(_replace_once(side, span, sentinel) for side in pair))
    return pair


def shared_spans(pair: Pair) -> list[str]:
    """Return names, numbers, addresses, placeholders, tags and code that stand exactly once on each side, apart."""
    spans: list[str] = []
    for found in _SPAN.finditer(pair.source):
        runs = [found[0]] if _is_shared(found[0], pair) else found[0].split(" ")
        spans += [span for span in runs if _is_shared(span, pair)]
    return [span for span in spans if not any(span in other for other in spans if other != span)]


def _is_shared(span: str, pair: Pair) -> bool:
    return bool(_SPAN.fullmatch(span)) and all(side.count(span) == 1 and _bounded(span).search(side) for side in pair)


def _bounded(span: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.,]){re.escape(span)}(?!\w|[.,]\d)" if span[0].isalnum() else re.escape(span))


def _replace_once(text: str, span: str, replacement: str) -> str:
    return text.replace(span, replacement, 1)


def _turned(items: Sequence[str], rng: random.Random) -> Sequence[str]:
    """The items in their order, begun anywhere, so that all of them are learnt; half of the time with the first."""
    start = rng.randrange(len(items)) if rng.random() < 0.5 else 0
    return [*items[start:], *items[:start]]
