"""`dragoman bulk`, `dragoman loadtest` and `dragoman serve --demo` with a server that asks for TLS and an API key."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.cli.keys import NewKey, append_entry, entry_of
from service.grpc.api_keys import generate_key
from tests.fakes.certificates import Authority
from tests.fakes.server_process import ServerProcess, StartServer

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("DRAGOMAN_")}


class Secured:
    """A server, and what its one caller needs."""

    def __init__(self, start_server: StartServer, directory: Path, *options: str) -> None:
        authority, key = Authority(directory, "ours"), generate_key()
        pair, keys = authority.issue("server"), directory / "keys.toml"
        append_entry(keys, entry_of(NewKey(name="shop"), key))
        self.key_file = directory / "key"
        self.key_file.write_text(f"{key}\n")
        self.options = ("--ca", str(authority.certificate), "--api-key-file", str(self.key_file))
        self.server: ServerProcess = start_server(
            *(
                "--set",
                f"security.tls_certificate={pair.certificate}",
                "--set",
                f"security.tls_key={pair.key}",
                "--set",
                f"security.api_keys={keys}",
            ),
            *options,
        )


@pytest.fixture
def secured(start_server: StartServer, tmp_path: Path) -> Secured:
    return Secured(start_server, tmp_path)


def dragoman(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "service", *arguments]
    environment = ENVIRONMENT | variables
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, env=environment)


def test_bulk_reaches_it_and_says_when_it_may_not(secured, tmp_path):
    source, output = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("one\ntwo\nthree\n")
    call = ("bulk", str(source), str(output), "--server", secured.server.address)

    refused = dragoman(*call, *secured.options[:2])
    done = dragoman(*call, *secured.options)

    assert (refused.returncode, done.returncode) == (2, 0), done.stderr
    assert "API key" in refused.stderr
    assert output.read_text() == source.read_text()


def test_load_reaches_it(secured, tmp_path):
    report = tmp_path / "report.json"

    done = dragoman(
        *("loadtest", "--server", secured.server.address, *secured.options, "--rate", "20", "--duration", "1"),
        *("--warm-up", "0", "--arrivals", "constant", "--priority", "batch", "--report", str(report)),
    )

    assert done.returncode == 0, done.stderr
    (stage,) = json.loads(report.read_text())["stages"]
    assert stage["codes"] == {"OK": 20}
    assert secured.key_file.read_text().strip() not in report.read_text()
