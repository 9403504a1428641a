"""Golden sentences for a bundle: what its graphs make of a few texts, for a server to find again before it serves.

    python -m export.golden BUNDLE SENTENCES      gives a bundle that has none, or other ones, its golden sentences

Knows bundles and the plain runner; nothing of how a server compares.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from export.runner import GraphRunner
from model.bundle import MANIFEST_NAME, Bundle, BundleError, FileEntry, Variant, file_entry
from model.config import ModelConfig
from model.golden import GOLDEN_NAME, MAX_TARGET_TOKENS, GoldenSentence, to_tsv
from model.tokenizer import Tokenizer, normalize_text

NUM_SENTENCES = 16  # a tenth of a second of a server's start, with an included model
MAX_SOURCE_TOKENS = 32
PRECISIONS = ("int8", "fp32")  # those that run on a CPU


def choose_texts(tokenizer: Tokenizer, sentences: Iterable[Sequence[int]]) -> list[str]:
    """Texts for `write_golden`: the first sentences, given in token ids, that are short and one line."""
    texts = (tokenizer.decode(ids) for ids in sentences if len(ids) <= MAX_SOURCE_TOKENS)
    return list(dict.fromkeys(text for text in texts if _is_plain(text)))[:NUM_SENTENCES]


def write_golden(
    directory: Path, config: ModelConfig, variants: dict[str, Variant], texts: Sequence[str], max_target_tokens: int
) -> str:
    """Have the graphs in `directory` translate the texts, write it down there, and return the file's name.

    Without texts, or graphs that run on a CPU, nothing is written and the name is empty.
    """
    tokenizer = Tokenizer.load(directory / "shared.spm")
    limit = min(MAX_TARGET_TOKENS, max_target_tokens)
    golden: list[GoldenSentence] = []
    for precision in PRECISIONS:
        if precision in variants:
            encoder, decoder_step = variants[precision].encoder, variants[precision].decoder_step
            runner = GraphRunner(directory / encoder, directory / decoder_step, config)
            golden += _translated(precision, runner, tokenizer, texts, limit)
    if not golden:
        return ""
    (directory / GOLDEN_NAME).write_text(to_tsv(golden), encoding="utf-8")
    return GOLDEN_NAME


def add_golden(bundle: Bundle, texts: Sequence[str]) -> Bundle:
    """Give a bundle these golden sentences, in its own place; its signature, if it has one, no longer fits."""
    manifest = bundle.manifest
    name = write_golden(
        bundle.directory, manifest.config, manifest.variants, texts, manifest.decoding.max_target_tokens
    )
    files: dict[str, FileEntry] = {**manifest.files, name: file_entry(bundle.path(name))}
    draft = bundle.path(f".{MANIFEST_NAME}")
    draft.write_text(replace(manifest, golden=name, files=files).to_json(), encoding="utf-8")
    draft.replace(bundle.path(MANIFEST_NAME))
    return Bundle.load(bundle.directory)


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
    bundle: Annotated[Path, typer.Argument(help="A bundle; its manifest changes.")],
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
