"""Golden sentences for a bundle: translations of a few texts, which a server repeats before it lets the bundle serve.

    python -m export.golden BUNDLE SENTENCES      gives a bundle that has none, or other ones, its golden sentences

Knows bundles and the plain runner, not how a server compares.
"""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
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
from model.pieces import normalize_text
from model.tokenizer import SupportsTokens, Tokenizer, load_tokenizer

NUM_SENTENCES = 16  # a tenth of a second of a server's start, with an included model
MAX_SOURCE_TOKENS = 32
PRECISIONS = ("int8", "fp32")  # those that run on a CPU


def choose_texts(tokenizer: Tokenizer, sentences: Iterable[Sequence[int]]) -> list[str]:
    """Return texts for `write_golden`: the first sentences, given in token ids, that are short and one line."""
    texts = (tokenizer.decode(ids) for ids in sentences if len(ids) <= MAX_SOURCE_TOKENS)
    return list(dict.fromkeys(text for text in texts if _is_plain(text)))[:NUM_SENTENCES]


def short_texts(tokenizer: SupportsTokens, texts: Iterable[str]) -> list[str]:
    """Return texts for `write_golden`: the first that are short and one line."""
    plain = (text for text in dict.fromkeys(map(normalize_text, texts)) if _is_plain(text))
    return list(islice((text for text in plain if 0 < len(tokenizer.encode(text)) <= MAX_SOURCE_TOKENS), NUM_SENTENCES))


def write_golden(directory: Path, manifest: Manifest, texts: Sequence[str]) -> str:
    """Write down how the graphs in `directory` translate the texts, and return the file's name.

    Without texts, or graphs that run on a CPU, nothing is written and the name is empty.
    """
    tokenizer = load_tokenizer(directory, manifest.tokenizer).between(*manifest.languages)
    limit = min(GOLDEN_MAX_TARGET_TOKENS, manifest.decoding.max_target_tokens) - manifest.decoding.forced_end
    golden: list[GoldenSentence] = []
    for precision in PRECISIONS:
        if precision in manifest.variants:
            variant = manifest.variants[precision]
            runner = GraphRunner(directory / variant.encoder, directory / variant.decoder_step, manifest.config)
            sources = [tokenizer.encode(text) for text in texts]
            translations = runner.greedy(sources, limit, tokenizer.target_prefix) if texts else []
            for text, translation in zip(texts, map(tokenizer.decode, translations), strict=True):
                if _is_plain(translation):
                    golden.append(GoldenSentence(precision=precision, source=text, translation=translation))
    if not golden:
        return ""
    write_golden_sentences(directory / GOLDEN_NAME, golden)
    return GOLDEN_NAME


def add_golden(bundle: Bundle, texts: Sequence[str]) -> Bundle:
    """Replace a bundle by itself with these golden sentences.

    Raises:
        BundleError: no graphs run on a CPU, or no translation fits into a line; the bundle stays as it was.
    """
    manifest, destination = bundle.manifest, bundle.directory.resolve()  # a link to a bundle stays one
    if not manifest.variants.keys() & set(PRECISIONS):
        raise BundleError(f"{bundle.directory} has no graphs for a CPU, only {sorted(manifest.variants)}; export them")
    with staging_directory(destination) as staging:
        for name in manifest.files:
            if name != manifest.golden and bundle.path(name).is_file():
                (staging / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(bundle.path(name), staging / name)
        name = write_golden(staging, manifest, texts)
        if not name:
            raise BundleError(f"{bundle.directory} translates none of {len(texts)} texts into one line; give others")
        return write_bundle(staging, destination, replace(manifest, golden=name))


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
        tokenizer = load_tokenizer(loaded.directory, loaded.manifest.tokenizer).between(*loaded.manifest.languages)
        lines = sentences.read_text(encoding="utf-8").splitlines()
        texts = short_texts(tokenizer, lines)
        if not texts:
            raise BundleError(f"{sentences} has no sentence of at most {MAX_SOURCE_TOKENS} tokens")
        golden = add_golden(loaded, texts).path(GOLDEN_NAME)
        typer.echo(f"{golden}: {len(golden.read_text(encoding='utf-8').splitlines())} sentences")
    except (ValueError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error


if __name__ == "__main__":
    typer.run(main)
