"""Bundles whose checksums are right and whose content is not: each costs an engine process at most, and says why.

Real engines of the committed bundle of an older day, hosted in this process.
"""

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from model.bundle import default_bundle_dir
from service.config import EngineConfig, ModelsConfig, ServerConfig
from service.engine.wire import Runtime
from service.server.model_hosting import ModelParts
from tests.fakes.native_engine import needs_native_engine

GOOD = Path(__file__).resolve().parents[2] / "compatibility" / "bundle_2026_11_21"
HUGE_PIECE = b"\x0a\x90\xa7\x12\x0a\x88\xa7\x12" + b"a" * 300_000 + b"\x15\x00\x00\x00\x00"
NOISE = random.Random(0).randbytes(5_000)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOOD, tmp_path / "bundle"))


def seal(bundle: Path, **changes: object) -> None:
    """Give the manifest the checksums of the files as they are now, as somebody who means harm would."""
    manifest = json.loads((bundle / "manifest.json").read_text()) | changes
    for name in manifest["files"]:
        content = (bundle / name).read_bytes()
        manifest["files"][name] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    (bundle / "manifest.json").write_text(json.dumps(manifest))


async def load(bundle: Path, runtime: Runtime = "auto", *, self_test: bool = True) -> None:
    """Load it as a server does, and end.

    Raises:
        Exception: what the server would say.
    """
    settings = ModelsConfig(self_test=self_test)
    engine = EngineConfig(bundle=bundle, num_engines=1, threads=1, runtime=runtime)
    running = ModelParts(ServerConfig(engine=engine, models=settings))
    try:
        await running.reloader.prepare()
        await running.reloader.load()
    finally:
        await running.close()


def swap_graphs(bundle: Path) -> None:
    graphs = bundle / "fp32"
    (graphs / "encoder.onnx").rename(graphs / "draft")
    (graphs / "decoder_step.onnx").rename(graphs / "encoder.onnx")
    (graphs / "draft").rename(graphs / "decoder_step.onnx")


def shorten_weights(bundle: Path) -> None:
    weights = bundle / "fp32" / "weights.data"
    weights.write_bytes(weights.read_bytes()[:1_000])


def change_config(bundle: Path) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    seal(bundle, config=manifest["config"] | {"num_decoder_layers": 2})


def write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda bundle: (bundle / name).write_bytes(content)


async def test_bundle_as_it_was_committed_is_fine(bundle):
    await load(bundle)


async def assert_refused(bundle: Path, spoil: Callable[[Path], object], reason: str, runtime: Runtime = "auto") -> None:
    spoil(bundle)
    seal(bundle)

    with pytest.raises(Exception, match=reason):
        await load(bundle, runtime)


DOES_NOT_RUN = "did not start: RuntimeError: the model does not run"


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        pytest.param(write("fp32/encoder.onnx", NOISE), "encoder.onnx cannot be loaded", id="noise"),
        pytest.param(shorten_weights, "cannot be loaded by ONNX Runtime", id="short weights"),
        pytest.param(swap_graphs, DOES_NOT_RUN, id="swapped"),
        pytest.param(change_config, DOES_NOT_RUN, id="layers that are not there"),
    ],
)
async def test_graph_that_cannot_be_is_refused_with_its_file(bundle, spoil, reason):
    await assert_refused(bundle, spoil, reason, "onnxruntime")


@needs_native_engine
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        pytest.param(write("fp32/decoder_step.onnx", b""), "fp32/decoder_step.onnx has no weights", id="empty"),
        pytest.param(shorten_weights, r"weights.data ends before \w+", id="short weights"),
        pytest.param(change_config, r"key_value.bias has shape \(64,\), \(128,\) is needed", id="layers"),
    ],
)
async def test_weights_that_are_not_there_are_refused_with_their_file_by_the_native_engine(bundle, spoil, reason):
    await assert_refused(bundle, spoil, reason, "native")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(NOISE, "shared.spm is not a SentencePiece model", id="noise"),
        pytest.param(HUGE_PIECE, "shared.spm", id="one huge piece"),
        pytest.param(
            (default_bundle_dir() / "shared.spm").read_bytes(),
            r"sentinels are \[\], those of shared.spm are \[8368, .*export the model again",
            id="of another model",
        ),
    ],
)
async def test_tokenizer_that_cannot_be_is_refused_with_its_file(bundle, content, reason):
    await assert_refused(bundle, write("shared.spm", content), reason)


async def test_golden_sentences_tell_weights_of_another_training(bundle):
    """Graphs, shapes and checksums fit; only what it says does not."""
    lines = (GOOD.parent / "translations_2026_11_21.tsv").read_text("utf-8").splitlines()
    (bundle / "golden.tsv").write_text("".join(f"fp32\t{line}\n" for line in lines))
    manifest = json.loads((bundle / "manifest.json").read_text())
    seal(bundle, golden="golden.tsv", files=manifest["files"] | {"golden.tsv": {}})

    with pytest.raises(ValueError, match=r"of 10 golden sentences differ, at most 5 may"):
        await load(bundle)
    await load(bundle, self_test=False)
