"""A checkpoint becomes a bundle: draw the graphs of each precision, compare them with PyTorch, write all at once.

Order: calibrate (only for int8), then for each precision build, verify, and last the manifest and one rename; a graph
that fails its comparison leaves nothing behind.
"""

import platform
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Protocol, TypeVar

from onnx import TensorProto

from export.builder import OPSET, WeightFile, save_graphs
from export.calibrate import COVERAGE, activation_scales, observe
from export.cuda import CudaEncoderGraph, CudaStepGraph, arrange_graph, extend_graph
from export.golden import choose_texts, write_golden
from export.graphs import DecoderStepGraph, EncoderGraph, ShortlistStepGraph, projection_graph
from export.linear import FloatProducts, Int8Products, Products
from export.runner import GraphRunner
from export.source import ExportSource
from export.state import State
from export.verify import TOLERANCES, Parity, compare, reference_model, seeded_samples, translated_samples
from model.bundle import WEIGHTS_NAME, Bundle, staging_directory, write_bundle
from model.config import ModelConfig
from model.manifest import GPU_PRECISION, TOKENIZER_NAME, DecodingDefaults, Manifest, Variant
from model.shortlist import SHORTLIST_NAME, Shortlist
from model.tokenizer import Tokenizer

ENCODER_NAME = "encoder.onnx"
DECODER_STEP_NAME = "decoder_step.onnx"
SHORTLIST_STEP_NAME = "shortlist_step.onnx"
PROJECTION_NAME = "projection.onnx"
ARRANGE_NAME = "arrange.onnx"
EXTEND_NAME = "extend.onnx"
PRECISIONS = ("int8", "fp32")  # unless others are asked for
ALL_PRECISIONS = (*PRECISIONS, GPU_PRECISION)

Sentences = Sequence[Sequence[int]]  # source ids, each ending with end-of-sentence
T = TypeVar("T")


class Track(Protocol):
    """Shows how far an iteration has come."""

    def __call__(self, items: Sequence[T], description: str) -> Iterable[T]:
        """The items, one by one."""
        ...


def no_track(items: Sequence[T], description: str) -> Iterable[T]:  # noqa: ARG001 - the protocol's argument
    """The items, and nothing shown."""
    return items


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """What the bundle is to contain."""

    precisions: tuple[str, ...] = PRECISIONS
    keep_weights: bool = True
    shortlist: Path | None = None  # of model/tools/learn_shortlist.py
    coverage: float = COVERAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Real sentences; none in common, so that a comparison does not see what calibration saw."""

    calibration: Sentences = ()
    verification: Sentences = ()


def export_bundle(
    source: ExportSource,
    destination: Path,
    options: ExportOptions,
    samples: Samples,
    track: Track = no_track,
) -> Bundle:
    """Write the bundle and return it.

    Raises:
        ValueError: int8 was asked for without calibration sentences, or the shortlist is none for this vocabulary.
        SourceError, ParityError, BundleError: see there.
    """
    if "int8" in options.precisions and not samples.calibration:
        raise ValueError("int8 needs calibration sentences: a few hundred lines of source text in --calibration FILE")
    if options.keep_weights:  # so that graphs drawn later from the kept weights are these graphs
        source = source.in_half_precision()
    with staging_directory(destination) as staging:
        shutil.copyfile(source.tokenizer_path, staging / TOKENIZER_NAME)
        if options.keep_weights:
            source.save_half(staging / WEIGHTS_NAME)
        if options.shortlist:
            Shortlist.load(options.shortlist, source.config.vocab_size).save(staging / SHORTLIST_NAME)
        variants = {
            precision: _export_variant(source, staging, precision, options, samples, track)
            for precision in options.precisions
        }
        manifest = _manifest(source, options, samples, variants)
        golden = write_golden(staging, manifest, _golden_texts(source, samples))
        return write_bundle(staging, destination, replace(manifest, golden=golden))


def write_graphs(config: ModelConfig, state: State, products: Products, directory: Path) -> list[GraphRunner]:
    """Write all graphs and their weights into a new directory, and open them: with all tokens, and with a shortlist."""
    directory.mkdir()
    weights = WeightFile()
    encoder = EncoderGraph(config, state, products, weights).graph
    decoder_step = DecoderStepGraph(config, state, products, weights).graph
    shortlist_step = ShortlistStepGraph(config, state, products, weights).graph
    projection = projection_graph(state, products, weights)
    graphs = {ENCODER_NAME: encoder, DECODER_STEP_NAME: decoder_step}
    save_graphs(graphs | {SHORTLIST_STEP_NAME: shortlist_step, PROJECTION_NAME: projection}, directory)
    paths = (directory / name for name in (ENCODER_NAME, DECODER_STEP_NAME, SHORTLIST_STEP_NAME, PROJECTION_NAME))
    encoder_path, step_path, shortlist_path, projection_path = paths
    return [
        GraphRunner(encoder_path, step_path, config),
        GraphRunner(encoder_path, shortlist_path, config, projection_path),
    ]


def write_cuda_graphs(config: ModelConfig, state: State, products: Products, directory: Path) -> GraphRunner:
    """Write the graphs for a GPU and their weights into a new directory, and open them, here on the CPU."""
    directory.mkdir()
    weights = WeightFile()
    graphs = {
        ENCODER_NAME: CudaEncoderGraph(config, state, products, weights).graph,
        DECODER_STEP_NAME: CudaStepGraph(config, state, products, weights).graph,
        ARRANGE_NAME: arrange_graph(config, products.dtype, weights),
        EXTEND_NAME: extend_graph(config, products.dtype, weights),
    }
    save_graphs(graphs, directory)
    return GraphRunner(directory / ENCODER_NAME, directory / DECODER_STEP_NAME, config)


def _export_cuda_variant(source: ExportSource, staging: Path, samples: Samples, track: Track) -> Variant:
    precision = GPU_PRECISION
    products = FloatProducts(dtype=TensorProto.FLOAT16)
    runner = write_cuda_graphs(source.config, source.state, products, staging / precision)
    parity = _verify(precision, source, runner, track(samples.verification, f"{precision}: verify"))
    return Variant(
        encoder=f"{precision}/{ENCODER_NAME}",
        decoder_step=f"{precision}/{DECODER_STEP_NAME}",
        arrange=f"{precision}/{ARRANGE_NAME}",
        extend=f"{precision}/{EXTEND_NAME}",
        parity=parity.to_dict(),
    )


def _export_variant(
    source: ExportSource, staging: Path, precision: str, options: ExportOptions, samples: Samples, track: Track
) -> Variant:
    if precision == GPU_PRECISION:
        return _export_cuda_variant(source, staging, samples, track)
    products = _products(precision, source, options, samples, track)
    runners = write_graphs(source.config, source.state, products, staging / precision)
    parity, _ = (
        _verify(precision, source, runner, track(samples.verification, f"{precision}: verify")) for runner in runners
    )
    return Variant(
        encoder=f"{precision}/{ENCODER_NAME}",
        decoder_step=f"{precision}/{DECODER_STEP_NAME}",
        shortlist_step=f"{precision}/{SHORTLIST_STEP_NAME}",
        projection=f"{precision}/{PROJECTION_NAME}",
        parity=parity.to_dict(),
    )


def _products(precision: str, source: ExportSource, options: ExportOptions, samples: Samples, track: Track) -> Products:
    if precision == "fp32":
        return FloatProducts()
    sentences = track(samples.calibration, "int8: calibrate")
    return Int8Products(activation_scales(observe(source.config, source.state, sentences), options.coverage))


def _verify(precision: str, source: ExportSource, runner: GraphRunner, sentences: Iterable[Sequence[int]]) -> Parity:
    """Compare on real sentences, or where there are none, and always for floats, on seeded inputs."""
    samples = translated_samples(runner, source.config, sentences)
    if precision != "int8" or not samples:
        samples += seeded_samples(source.config)
    parity = compare(runner, reference_model(source.config, source.state), samples)
    parity.require(precision, TOLERANCES[precision])
    return parity


def _manifest(source: ExportSource, options: ExportOptions, samples: Samples, variants: dict[str, Variant]) -> Manifest:
    tools = {name: installed_version(name) for name in ("onnx", "onnxruntime", "torch", "numpy")}
    settings = {"opset": str(OPSET), "python": platform.python_version()}
    if "int8" in variants:
        settings |= {"calibration_sentences": str(len(samples.calibration)), "coverage": str(options.coverage)}
    return Manifest(
        name=source.name,
        version=source.version,
        source_language=source.source_language,
        target_language=source.target_language,
        config=source.config,
        decoding=_decoding_defaults(source.config),
        variants=variants,
        shortlist=SHORTLIST_NAME if options.shortlist else "",
        exported_with={**tools, **settings},
    )


def _golden_texts(source: ExportSource, samples: Samples) -> Sequence[str]:
    """Those that the source has, or the first sentences that were given."""
    if source.golden_texts:
        return source.golden_texts
    return choose_texts(Tokenizer.load(source.tokenizer_path), [*samples.verification, *samples.calibration])


def _decoding_defaults(config: ModelConfig) -> DecodingDefaults:
    """The usual defaults, with no more tokens than the model has positions for."""
    usual = DecodingDefaults()
    return replace(
        usual,
        max_source_tokens=min(usual.max_source_tokens, config.max_positions),
        max_target_tokens=min(usual.max_target_tokens, config.max_positions),
    )
