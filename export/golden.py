"""Golden sentences for a bundle: what its graphs make of a few texts, for a server to find again before it serves.

    python -m export.golden BUNDLE SENTENCES      gives a bundle that has none, or other ones, its golden sentences

Knows bundles and the plain runner; nothing of how a server compares.
"""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from export.runner import GraphRunner
from model.bundle import (
    GOLDEN_MAX_TARGET_TOKENS,
    GOLDEN_NAME,
    Bundle,
    BundleError,
    GoldenSentence,
    staging_directory,
    write_bundle,
    write_golden_sentences,
)
from model.manifest import Manifest
from model.tokenizer import Tokenizer, normalize_text

NUM_SENTENCES = 16  # a tenth of a second of a server's start, with an included model
MAX_SOURCE_TOKENS = 32
PRECISIONS = ("int8", "fp32")  # those that run on a CPU


def choose_texts(tokenizer: Tokenizer, sentences: Iterable[Sequence[int]]) -> list[str]:
    """Texts for `write_golden`: the first sentences, given in token ids, that are short and one line."""
    texts = (tokenizer.decode(ids) for ids in sentences if len(ids) <= MAX_SOURCE_TOKENS)
    return list(dict.fromkeys(text for text in texts if _is_plain(text)))[:NUM_SENTENCES]


def write_golden(directory: Path, manifest: Manifest, texts: Sequence[str]) -> str:
    """Have the graphs in `directory` translate the texts, write it down there, and return the file's name.

    Without texts, or graphs that run on a CPU, nothing is written and the name is empty.

    Args:
        manifest: of what is in the directory; its `golden` and `files` are not looked at.
    """
    tokenizer = Tokenizer.load(directory / manifest.tokenizer)
    limit = min(GOLDEN_MAX_TARGET_TOKENS, manifest.decoding.max_target_tokens)
    golden: list[GoldenSentence] = []
    for precision in PRECISIONS:
        if precision in manifest.variants:
            variant = manifest.variants[precision]
            runner = GraphRunner(directory / variant.encoder, directory / variant.decoder_step, manifest.config)
            golden += _translated(precision, runner, tokenizer, texts, limit)
    if not golden:
        return ""
    write_golden_sentences(directory / GOLDEN_NAME, golden)
    return GOLDEN_NAME


def add_golden(bundle: Bundle, texts: Sequence[str]) -> Bundle:
    """Put the bundle with these golden sentences in its own place, without a signature: an older one no longer fits.

    Raises:
        BundleError: no graphs of it run on a CPU, or none of their translations fits into a line; it stays as it was.
    """
    manifest, destination = bundle.manifest, bundle.directory.resolve()  # a link to a bundle stays one
    if not manifest.variants.keys() & set(PRECISIONS):
        raise BundleError(f"{bundle.directory} has no graphs for a CPU, only {sorted(manifest.variants)}; export them")
    with staging_directory(destination) as staging:
        _copy_files(bundle, staging)
        name = write_golden(staging, manifest, texts)
        if not name:
            raise BundleError(f"{bundle.directory} translates none of {len(texts)} texts into one line; give others")
        return write_bundle(staging, destination, replace(manifest, golden=name))


def _copy_files(bundle: Bundle, directory: Path) -> None:
    """All that the manifest lists and that is there, but older golden sentences."""
    for name in bundle.manifest.files:
        if name != bundle.manifest.golden and bundle.path(name).is_file():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(bundle.path(name), directory / name)


def _translated(
    precision: str, runner: GraphRunner, tokenizer: Tokenizer, texts: Iterable[str], max_tokens: int
) -> Iterator[GoldenSentence]:
    for text in texts:
        _, steps = runner.greedy(tokenizer.encode(text), max_tokens)
        translation = tokenizer.decode([int(step["candidate_ids"].item()) for step in steps])
        if _is_plain(translation):
            yield GoldenSentence(precision=precision, source=text, translation=translation)


def _is_plain(text: str) -> bool:
    """Whether it stands in a line with tabs around it, and comes out of the file as it went in."""
    return normalize_text(text) == text and len(text.splitlines()) == 1


def main(
    bundle: Annotated[Path, typer.Argument(help="A bundle; it is replaced.")],
    sentences: Annotated[Path, typer.Argument(help="Source text, a sentence a line; the first of it are used.")],
) -> None:
    """Give BUNDLE golden sentences: the first of SENTENCES, as its graphs translate them now."""
    try:
        loaded = Bundle.load(bundle)
        tokenizer = Tokenizer.load(loaded.tokenizer_path)
        lines = sentences.read_text(encoding="utf-8").splitlines()
        texts = choose_texts(tokenizer, (tokenizer.encode(line) for line in lines))
        if not texts:
            raise BundleError(f"{sentences} has no sentence of at most {MAX_SOURCE_TOKENS} tokens")
        golden = add_golden(loaded, texts).path(GOLDEN_NAME)
        typer.echo(f"{golden}: {len(golden.read_text(encoding='utf-8').splitlines())} sentences")
    except (ValueError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error


if __name__ == "__main__":
    typer.run(main)
