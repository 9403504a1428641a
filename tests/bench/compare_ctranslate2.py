"""How many sentences of a file get the same tokens from the engine and from CTranslate2, both in fp32.

    python tests/bench/compare_ctranslate2.py SENTENCES.en.gz

Without a file: 1,000 sentences of our own.  Prints every difference with both outputs scored again by PyTorch.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from export.onnx_export import ExportOptions, Samples, export_bundle
from export.source import ExportSource
from model.bundle import default_bundle_dir
from model.data import read_lines
from tests.fakes.own_text import own_sentences
from tests.parity.token_comparison import compare_with_ctranslate2


def main(
    texts: Annotated[Path | None, typer.Argument(help="Sentences, one a line, plain or .gz.")] = None,
    bundle: Annotated[Path | None, typer.Option(help="A bundle with its weights; default: en-de.")] = None,
    beam_size: Annotated[int, typer.Option(min=1)] = 4,
    limit: Annotated[int, typer.Option(min=1, help="First sentences of the file only.")] = 1_000,
) -> None:
    """Compare the engine's tokens with CTranslate2's."""
    directory = bundle or default_bundle_dir()
    sentences = read_lines(texts)[:limit] if texts else own_sentences(limit)
    with tempfile.TemporaryDirectory() as scratch:
        fp32 = Path(scratch) / "fp32"
        options = ExportOptions(precisions=("fp32",), keep_weights=False)
        export_bundle(ExportSource.load(directory), fp32, options, Samples())
        found = compare_with_ctranslate2(directory, fp32, sentences, beam_size)
    for number, difference in enumerate(found.differences, start=1):
        print(f"{number}. {difference.text}")
        print(f"   engine      {difference.our_score:.6f}  {difference.ours}")
        print(f"   CTranslate2 {difference.their_score:.6f}  {difference.theirs}")
    same = found.num_sentences - len(found.differences)
    print(f"{same} of {found.num_sentences} sentences get the same tokens at beam {beam_size} ({found.same_share:.2%})")
    print(json.dumps({"sentences": found.num_sentences, "same": same, "beam_size": beam_size}))


if __name__ == "__main__":
    typer.run(main)
