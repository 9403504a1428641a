"""English text of our own in any amount: everyday sentences from parts, all different, 1 to 45 words.

Not a test.  For what needs many real sentences - comparing engines, mixing batches - but no reference translation.
"""

import itertools
import random
from collections.abc import Iterator

_SUBJECTS = (
    "the old man", "my sister", "our neighbour", "a young doctor", "the children", "two tired workers", "the teacher",
    "her brother", "the woman with the red hat", "everyone in the village", "a group of students", "the new manager",
    "Tom", "Mary", "I", "we", "they", "the customers", "a small dog", "the bus driver", "nobody", "your friend",
)  # fmt: skip
_PAST_PREDICATES = (
    "lost the keys", "bought fresh bread", "waited for the train", "wrote a long letter", "opened the window",
    "asked a difficult question", "found an old photograph", "repaired the broken door", "sang a song",
    "forgot the umbrella", "read the newspaper", "cooked soup for the guests", "saw a bird in the tree",
    "told a strange story", "paid the bill", "learned a new language", "drank a cup of coffee", "sold the blue car",
    "played chess", "looked at the map", "missed the last bus", "worked until midnight", "wanted to help",
    "closed the account", "changed the password", "sent the wrong document", "counted the money twice",
)  # fmt: skip
_PLACES = (
    "in the garden", "at the station", "near the river", "in a small town", "behind the house", "at work",
    "on the way home", "in the library", "by the sea", "in front of the bank", "at the market", "in Berlin",
)  # fmt: skip
_TIMES = (
    "yesterday", "last week", "this morning", "on Monday", "after dinner", "before the meeting", "in winter",
    "many years ago", "at half past seven", "during the holidays",
)  # fmt: skip
_CLAUSES = (
    "because it was raining", "although nobody had asked", "while the radio was playing", "before the sun went down",
    "so that everyone could hear it", "when the telephone rang", "as soon as the shop opened",
    "which surprised all of us", "and then went home without a word", "but it did not help very much",
)  # fmt: skip
_OPENINGS = ("I think that", "It is true that", "Do you know whether", "She said that", "In the report it says that")
_SHORT = (
    "Good morning!", "Thank you very much.", "Where is the station?", "I am tired.", "Come here.", "What happened?",
    "Stop!", "It is too late.", "How much does it cost?", "Please wait a moment.", "I do not understand.", "Why not?",
)  # fmt: skip


def own_sentences(count: int, seed: int = 1) -> list[str]:
    """`count` different sentences; the same seed gives the same ones."""
    distinct: dict[str, None] = {}
    for sentence in itertools.islice(_endless(random.Random(seed)), 40 * count):
        distinct[sentence] = None
        if len(distinct) == count:
            return list(distinct)
    raise ValueError(f"{count} different sentences wanted, the parts gave {len(distinct)}")


def numberless_sentences(count: int) -> list[str]:
    """`count` of them without numbers and days: what echoes those is translated again, with the target's words."""
    said_otherwise = ("two", "twice", "half past", "Monday")
    return [line for line in own_sentences(2 * count) if not any(word in line for word in said_otherwise)][:count]


def _endless(rng: random.Random) -> Iterator[str]:
    while True:
        kind = rng.random()
        if kind < 0.05:
            yield rng.choice(_SHORT)
        elif kind < 0.85:
            yield _sentence(rng)
        else:
            yield f"{_sentence(rng)} {_sentence(rng)}"


def _sentence(rng: random.Random) -> str:
    words = f"{rng.choice(_SUBJECTS)} {rng.choice(_PAST_PREDICATES)}"
    for parts, chance in ((_PLACES, 0.5), (_TIMES, 0.5), (_CLAUSES, 0.4)):
        if rng.random() < chance:
            words += f" {rng.choice(parts)}"
    if rng.random() < 0.2:
        words = f"{rng.choice(_OPENINGS)} {words}"
    return f"{words[0].upper()}{words[1:]}{'?' if words.startswith('Do you') else '.'}"
