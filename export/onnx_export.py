"""A checkpoint becomes a bundle: draw the graphs of each precision, compare them with PyTorch, write all at once.

Order: calibrate (only for int8), then for each precision build and verify, and last the manifest and one rename; a
graph that fails its comparison leaves nothing behind.
"""

import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

from onnx import TensorProto

from export.builder import OPSET, save_graphs
from export.calibrate import (
    COVERAGE,
    MAX_DIVERGENCE,
    LayerPrecision,
    activation_scales,
    layer_precisions,
    observe,
)
from export.cuda import draw_cuda_graphs
from export.golden import choose_texts, write_golden
from export.graphs import DECODER_STEP_NAME, ENCODER_NAME
from export.heads import TokenPair, choose_heads, usual_heads
from export.linear import ActivationScale, FloatProducts, Int8Products, Products, State
from export.recurrent_graphs import draw_graphs
from export.runner import GraphRunner, ScorerRunner
from export.scorer import SCORER_NAME, ScorerGraph
from export.source import ExportSource
from export.verify import (
    TOLERANCES,
    compare,
    compare_scorer,
    reference_model,
    seeded_samples,
    translated_samples,
)
from model.bundle import WEIGHTS_NAME, Bundle, staging_directory, write_bundle
from model.config import Architecture, ModelConfig
from model.manifest import GPU_PRECISION, AlignmentHeads, Manifest, TokenizerKind, Variant
from model.shortlist import SHORTLIST_NAME, Shortlist
from model.tokenizer import Tokenizer
from model.transformer import Transformer

PRECISIONS = ("int8", "fp32")  # unless others are asked for
LAYERS_NAME = "layers.tsv"  # beside int8 graphs: each layer, its divergence, and the type of its weights
ALL_PRECISIONS = (*PRECISIONS, GPU_PRECISION)

Sentences = Sequence[Sequence[int]]  # source ids, each ending with end-of-sentence
Track = Callable[[Sequence[Any], str], Iterable[Any]]  # items and a description -> the items, with a progress bar


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """What the bundle is to contain."""

    precisions: tuple[str, ...] = PRECISIONS
    keep_weights: bool = True
    shortlist: Path | None = None  # of model/tools/learn_shortlist.py
    coverage: float = COVERAGE
    max_divergence: float = MAX_DIVERGENCE  # of a layer's outputs as int8


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Real sentences; none in common, so that a comparison does not see what calibration saw."""

    calibration: Sentences = ()
    verification: Sentences = ()
    pairs: Sequence[TokenPair] = ()  # parallel text, that alignment heads are chosen with; none: those of the source


def export_bundle(
    source: ExportSource,
    destination: Path,
    options: ExportOptions,
    samples: Samples,
    track: Track = lambda items, _: items,
) -> Bundle:
    """Write the bundle and return it.

    Raises:
        ValueError: int8 was asked for without calibration sentences, and the source is no bundle with int8 graphs,
            whose scales would be kept; or the shortlist is none for this vocabulary.
        SourceError, ParityError, BundleError: as described there.
    """
    if "int8" in options.precisions and not samples.calibration and source.scales is None:
        raise ValueError("int8 needs calibration sentences: a few hundred lines of source text in --calibration FILE")
    if options.keep_weights:  # so that graphs drawn later from the kept weights are these graphs
        source = source.in_half_precision()
    reference = reference_model(source.config, source.state)
    if GPU_PRECISION in options.precisions and source.config.architecture is not Architecture.TRANSFORMER:
        raise ValueError(f"a model with a recurrent decoder has no graphs for a GPU: leave {GPU_PRECISION} out")
    if isinstance(reference, Transformer):
        if samples.pairs:
            source = replace(source, alignment=choose_heads(reference, samples.pairs))
    elif options.shortlist:
        raise ValueError("a recurrent model takes no shortlist: leave it out")
    if options.shortlist and source.tokenizer.languages:
        raise ValueError("a model of several pairs of languages takes no shortlist, which is of one: leave it out")
    with staging_directory(destination) as staging:
        source = replace(source, tokenizer=source.copy_tokenizer(staging))
        if options.keep_weights:
            source.save_half(staging / WEIGHTS_NAME)
        if options.shortlist:
            shortlist = Shortlist.load(options.shortlist, source.config.largest_vocabulary, source.config.eos_id)
            shortlist.check_targets(source.config.num_target_tokens)
            shortlist.save(staging / SHORTLIST_NAME)
        variants = {
            precision: _export_variant(source, staging / precision, options, samples, track)
            for precision in options.precisions
        }
        manifest = _manifest(source, options, samples, variants)
        texts: Sequence[str] = source.golden_texts
        if not texts and source.tokenizer.kind is TokenizerKind.SHARED:
            tokenizer = Tokenizer.load(source.tokenizer_path)
            texts = choose_texts(tokenizer, [*samples.verification, *samples.calibration])
        golden = write_golden(staging, manifest, texts)
        return write_bundle(staging, destination, replace(manifest, golden=golden))


def write_graphs(
    config: ModelConfig,
    state: State,
    products: Products,
    directory: Path,
    alignment: AlignmentHeads | None = None,
) -> GraphRunner:
    """Write the graphs for a CPU into a new directory, and open them."""
    directory.mkdir()
    graphs = draw_graphs(config, state, products)
    if not config.is_recurrent:
        weights, alignment = graphs[ENCODER_NAME].weights, alignment or usual_heads(config)
        graphs[SCORER_NAME] = ScorerGraph(config, state, products, weights, alignment).graph
    save_graphs(graphs, directory)
    return GraphRunner(directory / ENCODER_NAME, directory / DECODER_STEP_NAME, config)


def write_cuda_graphs(
    config: ModelConfig, state: State, products: FloatProducts, directory: Path, alignment: AlignmentHeads | None = None
) -> GraphRunner:
    """Write the graphs for a GPU into a new directory, and open encoder and step, here on the CPU."""
    directory.mkdir()
    save_graphs(draw_cuda_graphs(config, state, products, alignment), directory)
    return GraphRunner(directory / ENCODER_NAME, directory / DECODER_STEP_NAME, config)


def _export_variant(
    source: ExportSource, directory: Path, options: ExportOptions, samples: Samples, track: Track
) -> Variant:
    """Write the graphs of the precision that the directory is named after, and verify them.

    They are compared on real sentences, or where there are none, and always for floats, on seeded inputs.
    """
    precision, config, state = directory.name, source.config, source.state
    if precision == GPU_PRECISION:
        half = FloatProducts(dtype=TensorProto.FLOAT16)
        runner = write_cuda_graphs(config, state, half, directory, source.alignment)
    else:
        products: Products = FloatProducts()
        layers: list[LayerPrecision] = []
        if precision == "int8":
            scales, layers = _scales(source, options, samples, track, directory.parent)
            products = Int8Products(scales)
        runner = write_graphs(config, state, products, directory, source.alignment)
        if layers:
            (directory / LAYERS_NAME).write_text("".join(f"{layer}\n" for layer in layers), encoding="utf-8")
    reference = reference_model(config, state)
    inputs = translated_samples(runner, config, track(samples.verification, f"{precision}: verify"))
    if precision != "int8" or not inputs:
        inputs += seeded_samples(config)
    steps = compare(runner, reference, inputs)
    steps.require(precision, TOLERANCES[precision])
    found = asdict(steps)
    del runner  # an open graph has a copy of the projection, perhaps hundreds of megabytes
    graphs = {path.stem: f"{precision}/{path.name}" for path in directory.glob("*.onnx")}
    if "scorer" in graphs and isinstance(reference, Transformer):
        alignment = source.alignment or usual_heads(config)
        scorer = ScorerRunner(directory / SCORER_NAME, directory / ENCODER_NAME)
        scores = compare_scorer(scorer, reference, inputs, alignment)
        scores.require(precision, TOLERANCES[precision])
        found |= asdict(scores)
    parity = {name: round(value, 9) for name, value in found.items()}
    shows = precision != GPU_PRECISION and "scorer" in graphs
    return Variant(**graphs, repetition_penalty=True, attention_weights=shows, parity=parity)


def _scales(
    source: ExportSource, options: ExportOptions, samples: Samples, track: Track, scratch: Path
) -> tuple[dict[str, ActivationScale], list[LayerPrecision]]:
    """Return a scale for each layer that becomes int8, and what was found out about all of them.

    Scales are calibrated, or else those of the bundle that is exported again.
    """
    if source.scales is not None and not samples.calibration:
        return source.scales, []
    seen = observe(source.config, source.state, track(samples.calibration, "int8: calibrate"), scratch)
    scales = activation_scales(seen, options.coverage)
    layers = layer_precisions(seen, scales, options.max_divergence)
    return {layer.layer: scales[layer.layer] for layer in layers if not layer.is_float}, layers


def _manifest(source: ExportSource, options: ExportOptions, samples: Samples, variants: dict[str, Variant]) -> Manifest:
    tools = {name: installed_version(name) for name in ("onnx", "onnxruntime", "torch", "numpy")}
    settings = {"opset": str(OPSET), "python": platform.python_version()}
    if "int8" in variants and not samples.calibration:
        settings |= source.calibrated_with
    elif "int8" in variants:
        settings |= {"calibration_sentences": str(len(samples.calibration)), "coverage": str(options.coverage)}
    scorers = [variant.scorer for variant in variants.values() if variant.scorer]
    usual, positions = source.decoding, source.config.max_positions
    return Manifest(
        name=source.name,
        version=source.version,
        source_language=source.source_language,
        target_language=source.target_language,
        config=source.config,
        decoding=replace(
            usual,
            max_source_tokens=min(usual.max_source_tokens, positions),
            max_target_tokens=min(usual.max_target_tokens, positions),
            reliable_source_tokens=source.reliable_source_tokens,
        ),
        variants=variants,
        tokenizer=source.tokenizer,
        shortlist=SHORTLIST_NAME if options.shortlist else "",
        alignment=source.alignment or usual_heads(source.config) if scorers else None,
        exported_with={**tools, **settings},
    )
