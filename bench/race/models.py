"""The models of the race on disk: one set of weights, as bundles for Dragoman and converted for CTranslate2.

Everything is kept in a directory under a name that changes with whatever went into it, so that a second run finds it
and a change of the export is never raced with old graphs.
"""

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from bench.race.shapes import MAKERS, Shape
from bench.race.text import Sentence
from export.onnx_export import ExportOptions, Samples, export_bundle
from export.source import ExportSource
from model.bundle import Bundle
from model.manifest import BUNDLE_FORMAT_VERSION
from model.shortlist import Shortlist
from tests.parity.ctranslate2_model import token_names, write_ctranslate2_model


def write_vmap(shortlist: Shortlist, path: Path, pieces: Sequence[str]) -> None:
    """Write the candidates of each piece; the line with an empty source is what is always allowed.

    Args:
        shortlist: candidates by source token.
        path: goes into the model's directory as `vmap.txt`; `use_vmap=True` turns it on.
        pieces: the vocabulary by id, none of them with a blank.
    """
    rows = [shortlist.entries[start:end] for start, end in pairwise(shortlist.offsets.tolist())]
    rules = zip(["", *pieces], [shortlist.always, *rows], strict=True)
    lines = [f"{source}\t{' '.join(pieces[token] for token in row)}\n" for source, row in rules if len(row)]
    path.write_text("".join(lines), encoding="utf-8")


ROOT = Path(__file__).resolve().parents[2]
PRECISIONS = ("int8", "fp32", "fp16")  # fp16: on a GPU, both sides
VERIFICATION_SENTENCES = 8
_CODE = ("export/*.py", "model/transformer.py", "bench/race/shapes.py", "tests/parity/ctranslate2_model.py")


@dataclass(frozen=True, slots=True)
class RaceModel:
    """One shape, ready for both sides."""

    ids: dict[str, int]  # tokens by name
    bundles: dict[str, Bundle]  # by precision
    ctranslate2_dir: Path  # float32; quantised when it is loaded


def prepare(
    shape_name: str, precisions: Sequence[str], source: Bundle, calibration: Sequence[Sentence], cache: Path
) -> RaceModel:
    """Make what is not in the cache yet.

    Args:
        shape_name: a key of MAKERS.
        precisions: of PRECISIONS.
        source: a bundle with its weights; its own graphs are raced where it has them.
        calibration: for int8.
        cache: a directory; is created.
    """
    weights = ExportSource.load(source.directory)
    shape = MAKERS[shape_name](weights.config, weights.state)
    place = cache / f"{shape_name}-{_fingerprint(source, calibration)}"
    place.mkdir(parents=True, exist_ok=True)
    names = token_names(source.tokenizer_path, shape.config.vocab_size)
    lists = _shortlist(shape, source)
    if lists is not None:
        lists.save(place / "shortlist.csr")
    return RaceModel(
        ids={name: token for token, name in enumerate(names)},
        bundles={each: _bundle(each, shape, weights, source, calibration, place) for each in precisions},
        ctranslate2_dir=_ctranslate2(shape, source, lists, names, place / "ctranslate2"),
    )


def _fingerprint(source: Bundle, calibration: Sequence[Sentence]) -> str:
    """Return twelve digits that change with all that models are made from, and with the code that makes them."""
    digest = hashlib.sha256(f"{source.sha256_12} {BUNDLE_FORMAT_VERSION}".encode())
    digest.update(repr([sentence.ids for sentence in calibration]).encode())
    for path in [path for pattern in _CODE for path in sorted(ROOT.glob(pattern))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _shortlist(shape: Shape, source: Bundle) -> Shortlist | None:
    """Return the source's candidates in the shape's vocabulary, whose added tokens translate nothing."""
    if not source.manifest.shortlist:
        return None
    vocab_size = source.manifest.config.vocab_size
    lists = Shortlist.load(source.path(source.manifest.shortlist), vocab_size)
    offsets = np.pad(lists.offsets, (0, shape.config.vocab_size - vocab_size), mode="edge")
    return replace(lists, vocab_size=shape.config.vocab_size, offsets=offsets)


def _bundle(
    precision: str,
    shape: Shape,
    weights: ExportSource,
    source: Bundle,
    calibration: Sequence[Sentence],
    place: Path,
) -> Bundle:
    if shape.name == "default" and precision in source.manifest.variants:
        return source
    directory, lists = place / precision, place / "shortlist.csr"
    if not directory.exists():
        samples = Samples(
            calibration=[sentence.ids for sentence in calibration] if precision == "int8" else [],
            verification=[sentence.ids for sentence in calibration[-VERIFICATION_SENTENCES:]],
        )
        options = ExportOptions(
            precisions=(precision,), keep_weights=False, shortlist=lists if lists.exists() else None
        )
        model = replace(weights, config=shape.config, state=shape.state, name=shape.name)
        export_bundle(model, directory, options, samples)
    return Bundle.load(directory)


def _ctranslate2(shape: Shape, source: Bundle, lists: Shortlist | None, names: Sequence[str], directory: Path) -> Path:
    if not directory.exists():
        partial = directory.with_name(f"{directory.name}.partial")  # a kill leaves no half model behind
        shutil.rmtree(partial, ignore_errors=True)
        write_ctranslate2_model(shape.config, shape.state, source.tokenizer_path, partial)
        if lists is not None:
            write_vmap(lists, partial / "vmap.txt", names)
        partial.rename(directory)
    return directory
