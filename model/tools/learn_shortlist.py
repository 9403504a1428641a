"""Learn a model's lexical shortlist from parallel text, best from the model's own translations.

A source token may become the target tokens that word alignment finds likeliest for it, or itself: names and numbers are
copied.  Always allowed is what has no letters, and then the target tokens that these lists miss most often in sentence
pairs held back from the alignment: frequent words, and parts of words that come with no particular source.

Word alignment is IBM Model 1 (Brown et al. 1993), by EM over parallel text, in NumPy on token ids.  A *link* is a
source token and a target token of the same sentence pair; all links of the same two ids are a *couple*.  The
end-of-sentence token that ends every source is the model's null word, which explains what no other source token does.
Takes about 5 bytes of memory for each link.  Axes: C couples, V vocabulary.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from model.bundle import Bundle
from model.config import ModelConfig
from model.corpus import read_corpus, read_pairs
from model.data import Example, encode_pairs
from model.manifest import Manifest
from model.recipe import BatchConfig, load_recipe
from model.shortlist import Shortlist
from model.tokenizer import SupportsTokens, load_tokenizer

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
console = Console(stderr=True)

# en-de keeps its BLEU with 100 always allowed as with 1,000 (bench/score_dev_sets.py --shortlist).
CANDIDATES, ALWAYS = 20, 100
HELD_OUT = 10  # one sentence pair in so many
ITERATIONS = 5  # of EM, as fast_align (Dyer et al. 2013) does by default
FILTER = BatchConfig(max_sentence_tokens=50)  # links grow with the square of the length


_CHUNK_LINKS = 4_000_000  # links whose couples are found together

Track = Callable[[Sequence[Any], str], Iterable[Any]]  # items, what is done with them -> the items, with a progress bar
TokenPairs = Sequence[tuple[Sequence[int], Sequence[int]]]  # source and target ids of each sentence pair


class _LinkChunk(NamedTuple):
    """Links of some sentence pairs, target token after target token; its couples have numbers of their own."""

    keys: NDArray[np.int64]  # [own couples] see `Links.keys`; ascending
    couples: NDArray[np.int32]  # [links] which of its own couples each link is
    starts: NDArray[np.int64]  # [target tokens] first link of each
    targets: NDArray[np.int64]  # [target tokens] ids


@dataclass(frozen=True, slots=True)
class Links:
    """Every link of a parallel text."""

    vocab_size: int
    sources: NDArray[np.int64]  # [C] ids, ascending; the target ids of one source token ascend too
    targets: NDArray[np.int64]  # [C] ids
    chunks: tuple[_LinkChunk, ...]
    numbers: tuple[NDArray[np.int64], ...]  # for each chunk [own couples]: which of all couples

    @classmethod
    def of(cls, pairs: TokenPairs, vocab_size: int, track: Track) -> "Links":
        """Find the links of some sentence pairs."""
        chunks = tuple(_links(part, vocab_size) for part in track(_cut(pairs), "links"))
        keys = np.sort(np.concatenate([chunk.keys for chunk in chunks]))
        keys = keys[np.diff(keys, prepend=-1) > 0]  # np.unique would hash them, which is slow
        numbers = tuple(np.searchsorted(keys, chunk.keys) for chunk in chunks)
        return cls(vocab_size, keys // vocab_size, keys % vocab_size, chunks, numbers)

    @property
    def keys(self) -> NDArray[np.int64]:
        """One number for each couple [C], source id x V + target id, ascending."""
        return self.sources * self.vocab_size + self.targets

    def translation_probabilities(self, iterations: int, track: Track) -> NDArray[np.float64]:
        """Return p(target token | source token) of each couple [C] after some iterations of EM from uniform ones."""
        probabilities = np.ones(len(self.sources))
        for _ in track(range(iterations), "alignment"):
            counts = np.zeros(len(self.sources))
            for chunk, numbers in zip(self.chunks, self.numbers, strict=True):
                expected = probabilities[numbers][chunk.couples]  # how likely each link is ...
                widths = np.diff(chunk.starts, append=len(expected))
                expected /= np.repeat(np.add.reduceat(expected, chunk.starts), widths)  # ... for its target token
                counts[numbers] += np.bincount(chunk.couples, expected, len(numbers))
            totals = np.bincount(self.sources, counts, self.vocab_size)
            probabilities = counts / totals[self.sources]
        return probabilities

    def unexplained(self, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return how often each target token [V] occurs without a chosen couple [C] in its sentence pair."""
        counts = np.zeros(self.vocab_size, dtype=np.int64)
        for chunk, numbers in zip(self.chunks, self.numbers, strict=True):
            is_explained = np.logical_or.reduceat(chosen[numbers][chunk.couples], chunk.starts)
            counts += np.bincount(chunk.targets[~is_explained], minlength=self.vocab_size)
        return counts


def _cut(pairs: TokenPairs) -> list[TokenPairs]:
    """Runs of sentence pairs of about `_CHUNK_LINKS` links each."""
    sizes = np.cumsum([len(source) * len(target) for source, target in pairs])
    bounds = np.flatnonzero(np.diff(sizes // _CHUNK_LINKS, prepend=0, append=-1)).tolist()
    return [pairs[start:end] for start, end in zip([0, *bounds[:-1]], bounds, strict=True) if start < end]


def _links(pairs: TokenPairs, vocab_size: int) -> _LinkChunk:
    source_lengths = np.array([len(source) for source, _ in pairs])
    target_lengths = np.array([len(target) for _, target in pairs])
    sources = np.concatenate([source for source, _ in pairs])
    targets = np.concatenate([target for _, target in pairs])
    # Sources a b and c, targets x y and z: widths = [2, 2, 1], starts = [0, 2, 4], links = ax bx ay by cz
    widths = np.repeat(source_lengths, target_lengths)
    starts = np.cumsum(widths) - widths
    first_sources = np.repeat(np.cumsum(source_lengths) - source_lengths, target_lengths)
    positions = np.arange(int(widths.sum())) + np.repeat(first_sources - starts, widths)
    key_type = np.uint32 if vocab_size <= 1 << 16 else np.int64  # half the width sorts in half the time
    links = sources.astype(key_type)[positions] * key_type(vocab_size) + np.repeat(targets.astype(key_type), widths)
    keys, couples = np.unique(links, return_inverse=True)
    return _LinkChunk(keys.astype(np.int64), couples.astype(np.int32), starts, targets)


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Aligned text, from which shortlists of every size are chosen."""

    links: Links
    ranks: NDArray[np.int64]  # [C] of the links' couples, by probability, 0 the likeliest of its source token
    held_out: Sequence[Example]  # sentence pairs that the links are not of
    held_out_links: Links
    letterless: NDArray[np.int64]  # ids, end-of-sentence and unknown among them
    config: ModelConfig

    @classmethod
    def learn(
        cls, examples: Sequence[Example], tokenizer: SupportsTokens, config: ModelConfig, track: Track
    ) -> "Lexicon":
        """Align some sentence pairs of a model.

        Raises:
            ValueError: there are too few pairs to hold any back.
        """
        if len(examples) < HELD_OUT:
            raise ValueError(f"{len(examples)} usable sentence pairs to learn from, at least {HELD_OUT} are needed")
        shuffled = random.Random(1).sample(examples, len(examples))
        held_out, aligned = shuffled[: len(examples) // HELD_OUT], shuffled[len(examples) // HELD_OUT :]
        links, held_out_links = (Links.of(part, config.largest_vocabulary, track) for part in (aligned, held_out))
        probabilities = links.translation_probabilities(ITERATIONS, track)
        order = np.lexsort((-probabilities, links.sources))  # source tokens ascend and stay where they are
        ranks = np.empty_like(order)
        ranks[order] = np.arange(len(order)) - np.searchsorted(links.sources, links.sources)
        return cls(links, ranks, held_out, held_out_links, letterless_ids(tokenizer, config), config)

    def shortlist(self, *, candidates: int, always: int) -> Shortlist:
        """Return the shortlist of a size.

        It has the likeliest `candidates` of each source token besides itself, and `always` tokens with letters.  A
        source token is no target token where the model has two vocabularies.
        """
        vocab_size, end_id = self.links.vocab_size, self.config.eos_id
        itself = np.arange(vocab_size if self.config.target_vocab_size is None else 0)
        # End-of-sentence stands in every source: what it explains is a matter of what is always allowed.
        couples = (self.ranks < candidates) & (self.links.sources != end_id)
        sources = np.concatenate([self.links.sources[couples], itself])
        targets = np.concatenate([self.links.targets[couples], itself])
        # Tokens with letters that held-out pairs need most often without a link that allows them.
        allowed = np.isin(self.held_out_links.keys, sources * vocab_size + targets)
        missed = self.held_out_links.unexplained(allowed)
        missed[self.letterless] = 0
        most = np.argsort(-missed, kind="stable")[:always]
        everywhere = np.concatenate([self.letterless, most[missed[most] > 0]])
        return Shortlist.from_links(vocab_size, everywhere, sources, targets, end_id)


def coverage(shortlist: Shortlist, pairs: Iterable[tuple[Sequence[int], Sequence[int]]]) -> tuple[float, float]:
    """Return the share of the pairs' target tokens that a shortlist allows, and its mean number for a sentence."""
    allowed = total = sentences = candidates = 0
    for source, target in pairs:
        found = shortlist.candidates(source)
        allowed += int(np.isin(target, found).sum())
        total += len(target)
        candidates += len(found)
        sentences += 1
    return allowed / max(total, 1), candidates / max(sentences, 1)


def letterless_ids(tokenizer: SupportsTokens, config: ModelConfig) -> NDArray[np.int64]:
    """Return ids of target pieces without a letter: punctuation, digits, bytes, unknown, end-of-sentence."""
    unwritten = {config.pad_id, config.start_id} - {config.eos_id}
    texts = {token: tokenizer.decode([token]) for token in range(config.num_target_tokens) if token not in unwritten}
    return np.array([token for token, text in texts.items() if not any(char.isalpha() for char in text)])


@app.command()
def main(
    bundle: Annotated[Path, typer.Argument(help="The model, of one pair of languages.")],
    out: Annotated[Path, typer.Argument(help="Where the shortlist goes.")],
    data: Annotated[
        Path | None, typer.Option(help="Directory with train/NAME/NAME.LANG.gz: learn from the recipe's corpora.")
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="Recipe of the model: it names the corpora and the direction.")
    ] = None,
    source: Annotated[
        list[Path] | None, typer.Option(help="More text to learn from, plain or .gz; may be repeated.")
    ] = None,
    target: Annotated[
        list[Path] | None, typer.Option(help="Translations of the same lines; as many files as --source.")
    ] = None,
    candidates: Annotated[int, typer.Option(min=1, help="Target tokens for each source token.")] = CANDIDATES,
    always: Annotated[int, typer.Option(min=0, help="Target tokens for every sentence.")] = ALWAYS,
) -> None:
    """Learn which target tokens the translation of a source sentence may be made of.

    Example, from the model's own translations: dragoman translate --bundle BUNDLE < said.en > said.de;
    python -m model.tools.learn_shortlist BUNDLE shortlist.csr --source said.en --target said.de
    """
    if (data is None) != (recipe is None):
        raise typer.BadParameter("--recipe needs --data" if data is None else "--data needs --recipe")
    if not out.parent.is_dir():
        raise typer.BadParameter(f"{out} cannot be written: {out.parent} is no directory")
    sources, targets = source or [], target or []
    if len(sources) != len(targets):
        raise typer.BadParameter(f"{len(sources)} source files, {len(targets)} target files: each needs its other side")
    try:
        manifest = _manifest_of_one_pair(bundle)
        tokenizer = load_tokenizer(bundle, manifest.tokenizer)
        pairs = [pair for sides in zip(sources, targets, strict=True) for pair in read_pairs(*sides)]
        if recipe and data:
            loaded_recipe = load_recipe(recipe)
            for corpus in loaded_recipe.corpora:
                pairs += read_corpus(data, corpus, loaded_recipe.languages, loaded_recipe.seed)
        end = [manifest.config.eos_id]
        examples = encode_pairs(pairs, FILTER, tokenizer.encode, lambda text: [*tokenizer.encode_target(text), *end])
        console.log(f"{len(examples):,} sentence pairs")
        lexicon = Lexicon.learn(examples, tokenizer, manifest.config, partial(track, console=console, transient=True))
    except (ValueError, FileNotFoundError) as error:
        raise typer.BadParameter(str(error)) from error
    shortlist = lexicon.shortlist(candidates=candidates, always=always)
    shortlist.save(out)
    tokens, candidates_each = coverage(shortlist, lexicon.held_out)
    console.log(
        f"{out}: {out.stat().st_size:,} bytes; of held-out pairs it allows {tokens:.2%} of the target tokens, "
        f"with {candidates_each:,.0f} candidates a sentence"
    )


def _manifest_of_one_pair(bundle: Path) -> Manifest:
    manifest = Bundle.load(bundle).manifest
    if manifest.tokenizer.languages:
        raise ValueError(f"{bundle} is a model of several pairs of languages, a shortlist is of one")
    return manifest


if __name__ == "__main__":
    app(prog_name="python -m model.tools.learn_shortlist")
