"""E: bundles that are broken in ways their checksums do not show, and the first requests of a server."""

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from model.bundle import default_bundle_dir
from tests.fakes.calls import calling
from tests.fakes.own_text import own_sentences
from tests.fakes.server_process import run_to_end
from tests.reliability.conftest import Seen, p99_ms, waits_of

pytestmark = pytest.mark.reliability

REAL = {"DRAGOMAN_ENGINE__RUNNER_FACTORY": "service.engine.process:create_runner"}


def spoilt(tmp_path: Path, name: str, spoil: Callable[[Path], object]) -> Path:
    """A copy of the en-de bundle with one file changed, and the checksum that belongs to the change."""
    bundle = Path(shutil.copytree(default_bundle_dir(), tmp_path / "spoilt"))
    manifest = json.loads((bundle / "manifest.json").read_text())
    file = bundle / _graph(manifest, name)
    spoil(file)
    content = file.read_bytes()
    entry = manifest["files"][str(file.relative_to(bundle))]
    entry.update({"sha256": sha256(content).hexdigest(), "bytes": len(content)} if isinstance(entry, dict) else {})
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    return bundle


def _graph(manifest: dict[str, dict[str, dict[str, str]]], name: str) -> str:
    return manifest["variants"]["int8"].get(name, name)


def outside(location: str) -> Callable[[Path], object]:
    """Makes a graph whose only weights lie somewhere else."""

    def make(file: Path) -> None:
        tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=location)
        output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
        graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "g", [], [output], [tensor])
        file.write_bytes(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()
        )

    return make


def link_out(file: Path) -> None:
    outside("weights.link")(file)
    (file.parent / "weights.link").symlink_to("/etc/hostname")


GRAPHS: dict[str, Callable[[Path], object]] = {
    "truncated": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "empty": lambda file: file.write_bytes(b""),
    "random": lambda file: file.write_bytes(np.random.default_rng(1).bytes(20_000)),
    "another model": lambda file: file.write_bytes(
        onnx.ModelProto(ir_version=8, graph=onnx.GraphProto(name="nothing")).SerializeToString()
    ),
}


TOKENISERS: dict[str, bytes] = {
    "empty": b"",
    "random": np.random.default_rng(2).bytes(5_000),
    "one huge piece": b"\x0a\x90\xa7\x12\x0a\x88\xa7\x12" + b"a" * 300_000 + b"\x15\x00\x00\x00\x00",
}
LOCATIONS = ("../../../../../../etc/hostname", "/etc/hostname", "link")
CASES = [
    *(("E2", graph, kind, GRAPHS[kind]) for graph in ("encoder", "decoder_step") for kind in GRAPHS),
    *(("E3", "encoder", where, link_out if where == "link" else outside(where)) for where in LOCATIONS),
    *(("E4", "shared.spm", kind, partial(Path.write_bytes, data=content)) for kind, content in TOKENISERS.items()),
    ("E5", "shared.spm", "of another model", None),
]


@pytest.mark.parametrize(
    ("file", "kind", "spoil"),
    [pytest.param(*case, id=f"{row} {case[0]} {case[1]}", marks=pytest.mark.promise(row)) for row, *case in CASES],
)
def test_broken_file_ends_the_start_in_one_line(tmp_path, echo_bundle, seen: Seen, file, kind, spoil):
    """Whether the front process or the engine, which tries the files first, finds out: neither crashes."""
    bundle = spoilt(tmp_path, file, spoil or partial(shutil.copy, echo_bundle / "shared.spm"))

    status, errors = run_to_end(bundle, **REAL)

    lines = [line for line in errors.splitlines() if line.startswith("dragoman: ")]
    seen(f"{kind}: exit {status}")
    assert status in (1, 2)
    assert len(lines) == 1, errors
    assert "Traceback" not in errors
    assert os.uname().nodename not in errors


@pytest.mark.promise("E12")
@pytest.mark.timeout(120)
async def test_first_requests_are_as_quick_as_later_ones(start_server, seen: Seen):
    server = start_server(DRAGOMAN_ENGINE__BUNDLE=str(default_bundle_dir()), **REAL)
    texts = iter(own_sentences(100) * 3)
    async with calling(server.address) as calls:
        await calls.channel.channel_ready()
        waits = await waits_of(lambda: calls.translate(next(texts)), 300)
    first, steady = p99_ms(waits[:100]), p99_ms(waits[100:])
    seen(f"p99 of the first 100: {first:.0f} ms, later {steady:.0f} ms")
    assert first <= 2 * steady + 20
