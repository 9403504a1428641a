"""What an export starts from: a training checkpoint, or a bundle that kept its weights.

Knows both formats and half precision; knows no graph.
"""

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np
import onnx
from onnx import numpy_helper
from safetensors.numpy import save_file

from export.linear import SCALE_NAME, ZERO_POINT_NAME, ActivationScale, State
from model.bundle import MANIFEST_NAME, Bundle
from model.checkpoint import load_checkpoint
from model.config import ModelConfig
from model.manifest import TOKENIZER_NAME, AlignmentHeads, DecodingDefaults, TokenizerFiles, TokenizerKind
from model.tokenizer import Tokenizer

FIRST_VERSION = "1"  # of a model that was never exported
CALIBRATED = ("calibration_sentences", "coverage")  # what `Manifest.exported_with` says of int8 graphs


class SourceError(ValueError):
    """A directory that nothing can be exported from; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSource:
    """A trained model: its parameters in float32, and what must go with them."""

    config: ModelConfig
    state: State
    tokenizer_path: Path  # a shared SentencePiece model; of a foreign model: the directory with its files
    name: str
    version: str
    source_language: str
    target_language: str
    tokenizer: TokenizerFiles = field(default_factory=TokenizerFiles)
    decoding: DecodingDefaults = field(default_factory=DecodingDefaults)  # where the model's positions allow them
    shortlist_path: Path | None = None
    reliable_source_tokens: int | None = None  # as in `DecodingDefaults`
    golden_texts: tuple[str, ...] = ()  # texts whose translations the next bundle must have
    alignment: AlignmentHeads | None = None
    scales: dict[str, ActivationScale] | None = None  # of a bundle's int8 graphs, by layer
    calibrated_with: dict[str, str] = field(default_factory=dict)  # what its manifest says of them

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read a checkpoint or a bundle.

        Raises:
            SourceError: it is neither, or a part is missing.
            BundleError: the bundle is damaged.
        """
        is_bundle = (directory / MANIFEST_NAME).is_file()
        try:
            checkpoint = load_checkpoint(directory)
        except FileNotFoundError as error:
            raise SourceError(str(error) if is_bundle else f"{error}, and no bundle either") from error
        source = cls(
            config=checkpoint.config,
            state={name: tensor.float().numpy() for name, tensor in checkpoint.weights.items()},
            tokenizer_path=checkpoint.tokenizer_path,
            name=checkpoint.meta.name,
            version=FIRST_VERSION,
            source_language=checkpoint.meta.source_language,
            target_language=checkpoint.meta.target_language,
        )
        if not is_bundle:
            return source
        bundle = Bundle.load(directory, verify=False)  # `load_checkpoint` has verified it
        manifest = bundle.manifest
        golden = [sentence.source for precision in manifest.variants for sentence in bundle.golden_sentences(precision)]
        return replace(
            source,
            version=manifest.version,
            shortlist_path=bundle.path(manifest.shortlist) if manifest.shortlist else None,
            reliable_source_tokens=manifest.decoding.reliable_source_tokens,
            golden_texts=tuple(dict.fromkeys(golden)),
            alignment=manifest.alignment,
            scales=_scales_of(bundle) if "int8" in manifest.variants else None,
            calibrated_with={
                name: manifest.exported_with[name] for name in CALIBRATED if name in manifest.exported_with
            },
        )

    def copy_tokenizer(self, directory: Path) -> TokenizerFiles:
        """Copy the tokenizer's files into a bundle, and return their names there."""
        if self.tokenizer.kind is TokenizerKind.SHARED:
            shutil.copyfile(self.tokenizer_path, directory / TOKENIZER_NAME)
            return TokenizerFiles(sentinels=Tokenizer.load(self.tokenizer_path).sentinel_ids)
        for name in self.tokenizer.names:
            shutil.copyfile(self.tokenizer_path / name, directory / name)
        return self.tokenizer

    def in_half_precision(self) -> Self:
        """Return the same model with every parameter rounded to float16, as `save_half` keeps it.

        Raises:
            SourceError: a parameter is too large for float16.
        """
        with np.errstate(over="ignore"):
            rounded = {name: array.astype(np.float16).astype(np.float32) for name, array in self.state.items()}
        for name, array in rounded.items():
            if not np.isfinite(array).all():
                raise SourceError(f"{name} has values beyond float16's largest, 65504; export with --no-keep-weights")
        return replace(self, state=rounded)

    def save_half(self, path: Path) -> None:
        """Write all parameters in float16."""
        save_file({name: array.astype(np.float16) for name, array in self.state.items()}, path)
        path.chmod(0o644)  # as every other file of a bundle; safetensors lets only the owner read


def _scales_of(bundle: Bundle) -> dict[str, ActivationScale]:
    """Return how the int8 graphs of a bundle quantise the input of each layer."""
    numbers: dict[str, float] = {}
    variant = bundle.manifest.variants["int8"]
    for name in (variant.encoder, variant.decoder_step):
        graph = onnx.load(str(bundle.path(name)), load_external_data=False).graph
        numbers |= {
            tensor.name: numpy_helper.to_array(tensor).item()
            for tensor in graph.initializer
            if tensor.name.endswith((SCALE_NAME, ZERO_POINT_NAME))
        }
    layers = [name.removesuffix(SCALE_NAME) for name in numbers if name.endswith(SCALE_NAME)]
    return {
        layer: ActivationScale(numbers[f"{layer}{SCALE_NAME}"], int(numbers[f"{layer}{ZERO_POINT_NAME}"]))
        for layer in layers
    }
