"""Writes bundles of a model's shape whose weights are zeros that take no room on the disk: costs are counted on them.

    python -m bench.gpu_counted.shapes SHAPE DIRECTORY

What they translate is nothing, and how long a translation is does not come from them (`scripted.py`).
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from onnx import TensorProto

from export.builder import ALIGNMENT, GraphBuilder
from export.cuda import draw_cuda_graphs
from export.graphs import DECODER_STEP_NAME, ENCODER_NAME
from export.linear import FloatProducts
from model.bundle import staging_directory, write_bundle
from model.config import ModelConfig
from model.manifest import GPU_PRECISION, DecodingDefaults, Manifest, Variant
from model.transformer import Transformer

SHAPES = {
    "base": ModelConfig(
        vocab_size=32_000, d_model=512, d_ff=2_048, num_heads=8, num_encoder_layers=6, num_decoder_layers=6
    ),
    "nllb": ModelConfig(
        vocab_size=256_206, d_model=1_024, d_ff=4_096, num_heads=16, num_encoder_layers=12, num_decoder_layers=12
    ),
}


def main() -> None:
    """Write one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("directory", type=Path)
    given = parser.parse_args()
    config = SHAPES[given.shape]
    with torch.device("meta"):
        model = Transformer(config)
    state = {name: np.broadcast_to(np.float32(0), tensor.shape) for name, tensor in model.state_dict().items()}
    graphs = draw_cuda_graphs(config, state, FloatProducts(dtype=TensorProto.FLOAT16))
    with staging_directory(given.directory) as staging:
        (staging / "shared.spm").write_bytes(b"no pieces")
        (staging / GPU_PRECISION).mkdir()
        write_hollow(graphs, staging / GPU_PRECISION)
        variant = Variant(
            encoder=f"{GPU_PRECISION}/{ENCODER_NAME}",
            decoder_step=f"{GPU_PRECISION}/{DECODER_STEP_NAME}",
            repetition_penalty=True,
        )
        manifest = Manifest(
            name=given.shape,
            version="1",
            source_language="en",
            target_language="de",
            config=config,
            decoding=DecodingDefaults(),
            variants={GPU_PRECISION: variant},
        )
        write_bundle(staging, given.directory, manifest)


def write_hollow(graphs: dict[str, GraphBuilder], directory: Path) -> None:
    """Write graphs, and a weight file that is one hole."""
    weights = next(iter(graphs.values())).weights
    places, end = {}, 0
    for name, tensor in weights.tensors.items():
        begin = -(-end // ALIGNMENT) * ALIGNMENT
        places[name], end = (begin, tensor.nbytes), begin + tensor.nbytes
    with (directory / weights.name).open("wb") as out:
        out.truncate(end)
    for file_name, graph in graphs.items():
        (directory / file_name).write_bytes(graph.build(places).SerializeToString())


if __name__ == "__main__":
    main()
