"""Writes the graphs of a bundle with packed weights, so that engines of one model share one copy of them.

ONNX Runtime packs weights for the CPU when it loads a graph, into memory of the process.  It can save a graph with its
packed weights, and maps that file when it loads the graph again.  What graphs have in common, such as the decoder's
layers in step and scorer, then lies in one file once.  `service/engines/prepared_graphs.py` runs `main` before the
engines of a model start.
"""

import pickle
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from mmap import ALLOCATIONGRANULARITY
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from model.bundle import Bundle
from protos.graph_weights_pb2 import GraphFile, Tensor
from service.engine.cpu.instructions import cpu_flags
from service.engine.cpu.native.choice import choose_runtime
from service.engine.cpu.native.library import PACKED_NAME, weight_levels
from service.engine.cpu.native.pack import write_packed
from service.engine.cpu.session import load_shortlist, new_session, session_options
from service.engine.spec import EngineSpec

WEIGHTS_NAME = "weights.data"  # of all graphs
_ROOM = 3  # times the weights' bytes must be free for each graph: a prepared one keeps its weights unpacked too


def prepare_graphs(bundle: Bundle, precision: str | None, directory: Path) -> None:
    """Write the graphs that a runner of this bundle opens, with packed weights; OSError where there is no room."""
    variant = bundle.variant(precision)
    folder = PurePosixPath(variant.encoder).parent
    files = bundle.manifest.files.items()
    wanted = _ROOM * sum(entry.bytes for name, entry in files if PurePosixPath(name).is_relative_to(folder))
    names = [variant.encoder, variant.decoder_step]
    if variant.shortlist_step and load_shortlist(bundle, precision):
        names.append(variant.shortlist_step)
    if variant.scorer:
        names.append(variant.scorer)
    for name in names:
        free = shutil.disk_usage(directory).free
        if free < wanted:
            raise OSError(f"{directory} has room for {free:,} bytes, {wanted:,} are wanted")
        target = directory / name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as draft:
            # Twice: what constant folding makes is packed only where it is stored.
            _save(bundle.path(name), Path(draft) / target.name, with_packed=False)
            _save(Path(draft) / target.name, target, with_packed=True)
    merge_weights([directory / name for name in names])


def main() -> None:
    """Prepare the graphs of the spec on standard input, in a process of its own: a crafted graph could crash it."""
    spec: EngineSpec = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own process
    assert spec.prepared_dir is not None
    try:
        bundle = Bundle.load(spec.bundle_dir, manifest_sha256=spec.manifest_sha256)
        if choose_runtime(spec.runtime, bundle, spec.precision, spec.num_threads).runtime == "native":
            with (spec.prepared_dir / PACKED_NAME).open("xb+") as out:
                write_packed(bundle, spec.precision, out, weight_levels())
        else:
            prepare_graphs(bundle, spec.precision, spec.prepared_dir)
    except Exception as error:  # noqa: BLE001 - whatever it is, the core logs it
        sys.exit(f"{type(error).__name__}: {error}")


def _save(graph: Path, target: Path, *, with_packed: bool) -> None:
    options = session_options(1, cpu_flags())
    options.optimized_model_filepath = str(target)
    weights = target.with_suffix(".data").name
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", weights)
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    if with_packed:
        options.add_session_config_entry("session.save_external_prepacked_constant_initializers", "1")
    new_session(graph, options)


def merge_weights(graphs: Sequence[Path]) -> None:
    """Move what each graph has in a `.data` file of its own into one file of all, equal weights once."""
    with graphs[0].with_name(WEIGHTS_NAME).open("wb") as out:
        merged = _MergedWeights(out)
        for path in graphs:
            own = path.with_suffix(".data")
            file = GraphFile.FromString(path.read_bytes())
            with own.open("rb") as weights:
                for tensor in file.graph.initializer:
                    merged.move(tensor, weights)
            path.write_bytes(file.SerializeToString())
            own.unlink()


@dataclass(slots=True)
class _MergedWeights:
    """Weights one after the other, each once."""

    out: BinaryIO
    offsets: dict[str, int] = field(default_factory=dict)  # by what identifies the bytes

    def move(self, tensor: Tensor, weights: BinaryIO) -> None:
        """Take over a tensor, and its packed form if there is one, and tell it where it lies now."""
        known = {entry.key: entry for entry in tensor.external_data}
        if not known:  # small, and inside the graph
            return
        offset, length = int(known["offset"].value), int(known["length"].value)
        # Of a packed weight, ONNX Runtime notes "operator+hash|offset;length;0|...".
        packed = [entry for key, entry in known.items() if key.startswith("prepacked")]
        identity = packed[0].value.partition("|")[0] if packed else sha256(_part(weights, offset, length)).hexdigest()
        known["location"].value = WEIGHTS_NAME
        known["offset"].value = str(self._place(f"plain {identity} {length}", weights, offset, length))
        for entry in packed:
            name, *places = entry.value.split("|")
            moved = [self._moved(f"{name} {number}", place, weights) for number, place in enumerate(places)]
            entry.value = "|".join([name, *moved])

    def _moved(self, identity: str, place: str, weights: BinaryIO) -> str:
        """Take over a part of a packed weight, "offset;length;0", and return where it lies now."""
        offset, length, rest = place.split(";", 2)
        return f"{self._place(identity, weights, int(offset), int(length))};{length};{rest}"

    def _place(self, identity: str, weights: BinaryIO, offset: int, length: int) -> int:
        if identity not in self.offsets:
            self.out.write(b"\0" * (-self.out.tell() % ALLOCATIONGRANULARITY))
            self.offsets[identity] = self.out.tell()
            self.out.write(_part(weights, offset, length))
        return self.offsets[identity]


def _part(weights: BinaryIO, offset: int, length: int) -> bytes:
    weights.seek(offset)
    return weights.read(length)
