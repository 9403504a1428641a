"""The models of the race on disk: one set of weights, as bundles for Dragoman and converted for CTranslate2.

Everything is kept in a directory under a name that changes with whatever went into it, so that a second run finds it
and a change of the export is never raced with old graphs.
"""

import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from export.onnx_export import ExportOptions, Samples, export_bundle
from export.source import ExportSource
from model.bundle import Bundle
from model.config import ModelConfig
from model.manifest import BUNDLE_FORMAT_VERSION
from model.shortlist import Shortlist
from tests.bench.race.contestants import SearchOptions, Sentence
from tests.bench.race.peer_ctranslate2 import PeerSetting, Translations, open_translator
from tests.bench.race.shapes import Shape, base_shape, default_shape, positions_of
from tests.parity.ctranslate2_model import token_names, write_ctranslate2_model

ROOT = Path(__file__).resolve().parents[3]
PRECISIONS = ("int8", "fp32", "fp16")  # fp16: on a GPU, all sides
MAKERS: dict[str, Callable[..., Shape]] = {"default": default_shape, "base": base_shape}
CALIBRATION_SENTENCES = 128
VERIFICATION_SENTENCES = 8
_CODE = (
    "export/*.py",
    "model/transformer.py",
    "tests/bench/race/shapes.py",
    "tests/parity/ctranslate2_model.py",
)


@dataclass(frozen=True, slots=True)
class RaceModel:
    """One shape, ready for every contestant."""

    shape: Shape
    names: list[str]  # of the tokens, by id
    bundles: dict[str, Bundle]  # by precision
    ctranslate2_dir: Path  # float32; quantised when it is loaded
    max_source_tokens: int
    max_target_tokens: int
    has_shortlist: bool

    @property
    def config(self) -> ModelConfig:
        """Its dimensions."""
        return self.shape.config

    @property
    def ids(self) -> dict[str, int]:
        """Tokens by name."""
        return {name: token for token, name in enumerate(self.names)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingredients:
    """What models are made from."""

    source: Bundle  # with its weights; its own graphs are raced where it has them
    calibration: Sequence[Sentence]  # for int8
    shortlist: Path | None  # of the source's vocabulary

    @property
    def fingerprint(self) -> str:
        """Twelve digits that change with all of it, and with the code that makes models."""
        digest = hashlib.sha256(f"{self.source.sha256_12} {BUNDLE_FORMAT_VERSION}".encode())
        digest.update(repr([sentence.ids for sentence in self.calibration]).encode())
        code = [path for pattern in _CODE for path in sorted(ROOT.glob(pattern))]
        for path in [*code, *([self.shortlist] if self.shortlist else [])]:
            digest.update(path.read_bytes())
        return digest.hexdigest()[:12]


def prepare(shape_name: str, precisions: Sequence[str], ingredients: Ingredients, cache: Path) -> RaceModel:
    """Make what is not in the cache yet.

    Args:
        shape_name: a key of MAKERS.
        precisions: "int8" and "fp32".
        ingredients: what everything is made from.
        cache: a directory; is created.
    """
    source = ingredients.source
    weights = ExportSource.load(source.directory)
    shape = MAKERS[shape_name](weights.config, weights.state)
    place = cache / f"{shape_name}-{ingredients.fingerprint}"
    place.mkdir(parents=True, exist_ok=True)
    names = token_names(source.tokenizer_path, shape.config.vocab_size)
    return RaceModel(
        shape=shape,
        names=names,
        bundles={precision: _bundle(precision, shape, weights, ingredients, place) for precision in precisions},
        ctranslate2_dir=_ctranslate2(shape, ingredients, names, place / "ctranslate2"),
        max_source_tokens=source.manifest.decoding.max_source_tokens,
        max_target_tokens=source.manifest.decoding.max_target_tokens,
        has_shortlist=ingredients.shortlist is not None,
    )


def shortlist_for(shape: Shape, path: Path, source_vocabulary: int) -> Shortlist:
    """The same candidates in a larger vocabulary, whose added tokens translate nothing."""
    lists = Shortlist.load(path, source_vocabulary)
    added = shape.config.vocab_size - source_vocabulary
    return replace(lists, vocab_size=shape.config.vocab_size, offsets=np.pad(lists.offsets, (0, added), mode="edge"))


def same_translations(first: RaceModel, second: RaceModel, sentences: Sequence[Sentence], beam_size: int = 4) -> int:
    """To how many sentences two models give the same tokens in float32, by CTranslate2."""
    found = []
    for model in (first, second):
        setting = PeerSetting(compute_type="float32", max_batch_size=len(sentences))
        options = SearchOptions(beam_size=beam_size, max_target_tokens=model.max_target_tokens)
        peer = Translations(open_translator(model.ctranslate2_dir, setting), model.ids, setting, options)
        found.append([peer.tokens(answer) for answer in peer.translate(sentences)])
    return sum(one == other for one, other in zip(*found, strict=True))


def _bundle(precision: str, shape: Shape, weights: ExportSource, ingredients: Ingredients, place: Path) -> Bundle:
    source, directory = ingredients.source, place / precision
    if shape.name == "default" and _has_all(source, precision, ingredients):
        return source
    if not directory.exists():
        calibration = ingredients.calibration if precision == "int8" else ()
        samples = Samples(
            calibration=[sentence.ids for sentence in calibration],
            verification=[sentence.ids for sentence in ingredients.calibration[-VERIFICATION_SENTENCES:]],
        )
        options = ExportOptions(
            precisions=(precision,), keep_weights=False, shortlist=_shortlist_file(shape, ingredients, place)
        )
        model = replace(weights, config=shape.config, state=shape.state, name=shape.name)
        with positions_of(shape):
            export_bundle(model, directory, options, samples)
    return Bundle.load(directory)


def _has_all(bundle: Bundle, precision: str, ingredients: Ingredients) -> bool:
    """Whether the bundle can be raced as it is."""
    manifest = bundle.manifest
    own = bundle.path(manifest.shortlist) if manifest.shortlist else None
    return precision in manifest.variants and ingredients.shortlist in (None, own)


def _shortlist_file(shape: Shape, ingredients: Ingredients, place: Path) -> Path | None:
    if ingredients.shortlist is None:
        return None
    path = place / "shortlist.csr"
    shortlist_for(shape, ingredients.shortlist, ingredients.source.manifest.config.vocab_size).save(path)
    return path


def _ctranslate2(shape: Shape, ingredients: Ingredients, names: Sequence[str], directory: Path) -> Path:
    source = ingredients.source
    if not directory.exists():
        partial = directory.with_name(f"{directory.name}.partial")  # a kill leaves no half model behind
        shutil.rmtree(partial, ignore_errors=True)
        write_ctranslate2_model(shape.config, shape.state, source.tokenizer_path, partial, positions=shape.positions)
        if ingredients.shortlist:
            lists = shortlist_for(shape, ingredients.shortlist, source.manifest.config.vocab_size)
            lists.write_vmap(partial / "vmap.txt", names)
        partial.rename(directory)
    return directory
