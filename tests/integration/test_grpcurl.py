"""Discovery by reflection, with a client nobody here wrote: the commands of docs/clients.md.

Tried with grpcurl 1.8.6, which speaks grpc.reflection.v1alpha.
"""

import json
import shutil
import subprocess
from itertools import takewhile
from typing import Any

import pytest

GRPCURL = shutil.which("grpcurl")
SERVICE = "dragoman.v1.TranslationService"

pytestmark = pytest.mark.skipif(GRPCURL is None, reason="no grpcurl: make try-docs installs it")


@pytest.fixture
def grpcurl(server):
    def run(*arguments: str, data: Any = None) -> subprocess.CompletedProcess[str]:
        sent = [] if data is None else ["-d", json.dumps(data)]
        command = [str(GRPCURL), "-plaintext", "-max-time", "20", *sent, server.address, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    return run


def test_list_names_every_service(grpcurl):
    assert grpcurl("list").stdout.split() == [
        SERVICE,
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    ]


def test_translate_needs_no_proto_file(grpcurl):
    done = grpcurl(f"{SERVICE}/Translate", data={"texts": ["Hello."], "options": {"beam_size": 1}})

    assert json.loads(done.stdout)["translations"][0]["hypotheses"][0]["text"] == "Hello."


def test_stream_answers_under_the_id_of_each_text(grpcurl):
    done = grpcurl(f"{SERVICE}/TranslateStream", data={"texts": [{"id": 7, "text": "Hello."}]})

    assert json.loads(done.stdout)["translations"][0]["id"] == "7"


def test_health_watch_says_serving_and_goes_on(server):
    command = [str(GRPCURL), "-plaintext", "-max-time", "60", "-d", json.dumps({"service": SERVICE}), server.address]
    with subprocess.Popen([*command, "grpc.health.v1.Health/Watch"], stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        answer = "".join(takewhile(lambda line: line != "}\n", watching.stdout)) + "}"
        is_watching = watching.poll() is None
        watching.kill()

    assert json.loads(answer) == {"status": "SERVING"}
    assert is_watching
