"""What was made with an older Dragoman still works: its bundles, and clients of its contract.

Each date has a bundle as `python -m export` wrote it that day (a random model of one layer, so that it is small), the
translations it gave, and the contract.  They are never changed; a change of format adds another date.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from grpc_tools import protoc

from protos import translation_pb2
from service.local import LocalTranslator
from service.records import Segmentation, TranslateOptions
from tests.compatibility.old_client import BEAM_SIZE, MAX_TARGET_TOKENS

HERE = Path(__file__).resolve().parent
DATES = ["2026_11_21"]
BUNDLE_RUNNER = "service.engine.worker:create_runner"


def bundle_of(date: str) -> Path:
    return HERE / f"bundle_{date}"


def translations_of(date: str) -> dict[str, str]:
    lines = (HERE / f"translations_{date}.tsv").read_text("utf-8").splitlines()
    return dict(line.split("\t") for line in lines)


@pytest.fixture(params=DATES)
def date(request) -> str:
    return str(request.param)


@pytest.fixture
def server(start_server, date):
    """A server of that day's bundle, with the real engine."""
    return start_server(DRAGOMAN_ENGINE__BUNDLE=str(bundle_of(date)), DRAGOMAN_ENGINE__RUNNER_FACTORY=BUNDLE_RUNNER)


def test_old_bundle_gives_the_translations_it_gave(date):
    expected = translations_of(date)

    assert translated(date, list(expected), Segmentation.NONE) == list(expected.values())


def translated(date: str, texts: list[str], segmentation: Segmentation) -> list[str]:
    options = TranslateOptions(beam_size=BEAM_SIZE, max_target_tokens=MAX_TARGET_TOKENS, segmentation=segmentation)
    translator = LocalTranslator.open(bundle_of(date), threads=1)
    return [translation.text for translation in translator.translate_all(texts, options)]


def test_client_of_the_old_contract_gets_what_it_asks_for(server, date):
    """It knows no segmentation: its texts are taken apart, checked, and tried again where that is better."""
    expected = list(translations_of(date))
    command = [sys.executable, str(HERE / "old_client.py"), str(HERE / f"translation_{date}.proto"), server.address]

    done = subprocess.run(command, input="\n".join(expected), capture_output=True, text=True, timeout=60, check=True)

    answer = json.loads(done.stdout)
    texts = [translation["hypotheses"][0]["text"] for translation in answer["reply"]["translations"]]
    assert texts == translated(date, expected, Segmentation.SENTENCE)
    assert (answer["reply"]["model"], answer["reply"]["modelVersion"]) == ("tiny", "0")
    assert answer["models"]["models"][0]["defaultOptions"]["beamSize"] == 4


def contract_of(proto: Path, draft: Path) -> descriptor_pb2.FileDescriptorProto:
    """A contract as data, without entering it among those that this process knows."""
    assert protoc.main(["", f"-I{proto.parent}", f"--descriptor_set_out={draft}", proto.name]) == 0
    return descriptor_pb2.FileDescriptorSet.FromString(draft.read_bytes()).file[0]


def facts(contract: descriptor_pb2.FileDescriptorProto) -> Iterator[tuple[object, ...]]:
    """All that a client's code or bytes may depend on."""
    yield ("package", contract.package)
    for message in contract.message_type:
        for field in message.field:
            yield (message.name, field.name, field.number, field.type, field.type_name, field.label)
    for enum in contract.enum_type:
        for value in enum.value:
            yield (enum.name, value.name, value.number)
    for service in contract.service:
        for method in service.method:
            streams = (method.client_streaming, method.server_streaming)
            yield (service.name, method.name, method.input_type, method.output_type, *streams)


def test_contract_has_lost_and_changed_nothing_since(date, tmp_path):
    today = descriptor_pb2.FileDescriptorProto()
    translation_pb2.DESCRIPTOR.CopyToProto(today)

    old = contract_of(HERE / f"translation_{date}.proto", tmp_path / "set")

    assert set(facts(old)) - set(facts(today)) == set()
    assert len(set(facts(old))) > 30
