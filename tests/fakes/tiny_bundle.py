"""A bundle of a tiny random model, without the checks and the time of a real export."""

from collections.abc import Sequence
from pathlib import Path

from export.calibrate import activation_scales, observe
from export.linear import FloatProducts, Int8Products, Products
from export.onnx_export import write_graphs
from model.bundle import Bundle, staging_directory, write_bundle
from model.manifest import DecodingDefaults, Manifest, Variant
from model.shortlist import SHORTLIST_NAME, Shortlist
from model.tokenizer import train_tokenizer
from model.transformer import Transformer
from tests.fakes.tiny_model import SENTENCES, random_sentences, state_of

VOCABULARY = 80


def write_tiny_bundle(
    model: Transformer, destination: Path, precisions: Sequence[str] = ("fp32",), shortlist: Shortlist | None = None
) -> Bundle:
    """Write graphs of the model, which has VOCABULARY tokens, and a tokenizer of the same size."""
    with staging_directory(destination) as staging:
        train_tokenizer(SENTENCES, staging / "shared.spm", vocab_size=VOCABULARY, model_type="bpe")
        for precision in precisions:
            write_graphs(model.config, state_of(model), _products(model, precision), staging / precision)
        if shortlist is not None:
            shortlist.save(staging / SHORTLIST_NAME)
        return write_bundle(staging, destination, _manifest(model, precisions, SHORTLIST_NAME if shortlist else ""))


def _products(model: Transformer, precision: str) -> Products:
    if precision == "fp32":
        return FloatProducts()
    sentences = random_sentences(model.config, range(2, 20))
    return Int8Products(activation_scales(observe(model.config, state_of(model), sentences)))


def _manifest(model: Transformer, precisions: Sequence[str], shortlist: str) -> Manifest:
    limit = model.config.max_positions
    return Manifest(
        name="tiny",
        version="0",
        source_language="en",
        target_language="de",
        config=model.config,
        decoding=DecodingDefaults(max_target_tokens=limit, max_source_tokens=limit),
        variants={
            precision: Variant(
                encoder=f"{precision}/encoder.onnx",
                decoder_step=f"{precision}/decoder_step.onnx",
                shortlist_step=f"{precision}/shortlist_step.onnx",
                projection=f"{precision}/projection.onnx",
            )
            for precision in precisions
        },
        shortlist=shortlist,
    )
