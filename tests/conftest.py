"""What several kinds of test share: a text of our own and a tokenizer learnt from it."""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import grpc.aio
import pytest
from hypothesis import settings

# Before torch is imported: threads of several tests, waiting for each other on few cores, made one test take minutes.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A job that a shell runs in the background ignores Ctrl-C, and so would the processes that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes depends on the machine's other work; the examples are the same in each run.
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=20_000)  # by hand
settings.load_profile("repeatable")


# gRPC's asyncio part ends when its last object is collected, and the collector then waits for its calls, whichever test
# runs by then: for ever where a call has been left without an end.  So it stays.
grpc.aio.init_grpc_aio()


# Files that take long come first, so that at the end no process of pytest waits for another one.
ORDER = ("integration", "parity", "quality", "text", "component", "architecture", "unit")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests in the order of their directories."""
    ranks = {Path(__file__).parent / name: rank for rank, name in enumerate(ORDER)}
    items.sort(key=lambda item: next((ranks[folder] for folder in item.path.parents if folder in ranks), 0))


def pytest_collection_finish() -> None:
    """Spare the garbage collector what was imported, which it would look through a thousand times."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def without_collections() -> Iterator[None]:
    """For tests that compare times: a garbage collection of all that the tests before have left takes a second."""
    gc.disable()
    yield
    gc.enable()


ENGLISH = (
    "The children are playing in the garden.",
    "A red train stops at the small station.",
    "My sister reads a long book every evening.",
    "We bought fresh bread and cheese at the market.",
    "The old man feeds the birds by the river.",
    "Tomorrow it will rain, so take an umbrella with you.",
    "She has lost her keys and cannot open the door.",
    "The teacher explains the question once more.",
    "They are building a wooden bridge over the stream.",
    "He drinks his coffee without milk or sugar.",
)
GERMAN = (
    "Die Kinder spielen im Garten.",
    "Ein roter Zug hält an dem kleinen Bahnhof.",
    "Meine Schwester liest jeden Abend ein langes Buch.",
    "Wir haben auf dem Markt frisches Brot und Käse gekauft.",
    "Der alte Mann füttert die Vögel am Fluss.",
    "Morgen wird es regnen, also nimm einen Regenschirm mit.",
    "Sie hat ihre Schlüssel verloren und kann die Tür nicht öffnen.",
    "Die Lehrerin erklärt die Frage noch einmal.",
    "Sie bauen eine Holzbrücke über den Bach.",
    "Er trinkt seinen Kaffee ohne Milch und Zucker.",
)


@pytest.fixture(scope="session")
def tiny_tokenizer_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SentencePiece model of 120 pieces, learnt from the sentences above."""
    from model.tokenizer import train_tokenizer

    path = tmp_path_factory.mktemp("tokenizer") / "shared.spm"
    train_tokenizer([*ENGLISH, *GERMAN], path, vocab_size=120)
    return path


@pytest.fixture(scope="session")
def trained_bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """en-de by precision: int8 as it ships, fp32 exported again from the weights that ship with it."""
    from export.onnx_export import ExportOptions, Samples, export_bundle
    from export.source import ExportSource
    from model.bundle import default_bundle_dir

    fp32 = tmp_path_factory.mktemp("trained") / "fp32"
    source = ExportSource.load(default_bundle_dir())
    export_bundle(source, fp32, ExportOptions(precisions=("fp32",), keep_weights=False), Samples())
    return {"int8": default_bundle_dir(), "fp32": fp32}
