"""How well the included models align words: error rate against sentences that are aligned by hand.

    python bench/quality/alignment.py [BUNDLE ...] [--thresholds]

alignments.tsv has an English sentence, a German one and the links between their words, numbered from 0: `3-2` is sure,
`3?2` possible.  AER is 1 - (|A & S| + |A & P|) / (|A| + |S|) (Och and Ney 2003): 0 is perfect.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model.bundle import Bundle, included_bundle_dirs
from model.tokenizer import Tokenizer
from service.engine.cpu.runner import CpuRunner
from service.records import Span
from service.text.alignment import THRESHOLD, WordAttention, links, matrix, word_attention, words

FILE = Path(__file__).with_name("alignments.tsv")

Pairs = set[tuple[int, int]]  # numbers of a source word and a target word


class Aligned(NamedTuple):
    source: str
    target: str
    sure: Pairs
    possible: Pairs  # the sure ones included


class Rates(NamedTuple):
    error: float
    precision: float
    recall: float


def read(source_language: str) -> list[Aligned]:
    """The sentences, from this language to the other."""
    return [_aligned(line, is_reversed=source_language == "de") for line in FILE.read_text("utf-8").splitlines()]


def _aligned(line: str, *, is_reversed: bool) -> Aligned:
    english, german, marks = line.split("\t")
    found: dict[str, Pairs] = {"-": set(), "?": set()}
    for mark in marks.split():
        kind = "-" if "-" in mark else "?"
        first, second = map(int, mark.split(kind))
        assert first < len(words(english)), line
        assert second < len(words(german)), line
        found[kind].add((second, first) if is_reversed else (first, second))
    texts = (german, english) if is_reversed else (english, german)
    return Aligned(*texts, found["-"], found["-"] | found["?"])


def attend(bundle: Bundle, sentences: Sequence[Aligned]) -> list[WordAttention]:
    """The attention between the words of each pair."""
    runner, tokenizer = CpuRunner(bundle), Tokenizer.load(bundle.tokenizer_path)
    found = []
    for sentence in sentences:
        source_ids, source_spans = tokenizer.encode_with_spans(sentence.source)
        target_ids, target_spans = tokenizer.encode_with_spans(sentence.target)
        (scores,) = runner.score([(runner.encode([source_ids]), 0)], [target_ids[:-1]])
        found.append(
            word_attention(
                matrix(scores.attention, len(source_ids)),
                sentence.source,
                list(map(Span._make, source_spans)),
                sentence.target,
                list(map(Span._make, target_spans)),
            )
        )
    return found


def rates(
    sentences: Sequence[Aligned],
    attention: Sequence[WordAttention],
    threshold: float = THRESHOLD,
) -> Rates:
    """Of the links that this threshold gives."""
    num_found = num_sure = sure = possible = 0
    for sentence, found in zip(sentences, attention, strict=True):
        made = {
            (found.source.index(link.source), found.target.index(link.target))
            for link in links(found, threshold=threshold)
        }
        num_found, num_sure = num_found + len(made), num_sure + len(sentence.sure)
        sure, possible = sure + len(made & sentence.sure), possible + len(made & sentence.possible)
    return Rates(1 - (sure + possible) / (num_found + num_sure), possible / num_found, sure / num_sure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="*", type=Path, default=included_bundle_dirs())
    parser.add_argument("--thresholds", action="store_true", help="try others than those of service/text/alignment.py")
    arguments = parser.parse_args()
    for directory in arguments.bundles:
        bundle = Bundle.load(directory)
        sentences = read(bundle.manifest.source_language)
        attention = attend(bundle, sentences)
        for threshold in (0.05, 0.1, 0.15, 0.2, 0.3) if arguments.thresholds else (THRESHOLD,):
            found = rates(sentences, attention, threshold)
            print(
                f"{bundle.manifest.name} threshold {threshold:.2f}: AER {found.error:.3f}, precision "
                f"{found.precision:.3f}, recall {found.recall:.3f} on {len(sentences)} sentences"
            )


if __name__ == "__main__":
    main()
