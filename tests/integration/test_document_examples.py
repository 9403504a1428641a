"""The Python of docs/clients.md, run against the real server."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.certificates import Authority
from tests.fakes.secured_server import Keys
from tests.fakes.server_process import ServerProcess, start

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clients.md"

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="not in a checkout")


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    """Starts servers of the included models, as `dragoman serve` does."""
    servers: list[ServerProcess] = []

    def begin(**settings: str) -> ServerProcess:
        settings["DRAGOMAN_ENGINE__RUNNER_FACTORY"] = "service.engine.worker:create_runner"
        servers.append(start(None, tmp_path, **settings))
        return servers[-1]

    yield begin
    for server in servers:
        server.process.kill()
        server.process.wait()


def examples() -> list[str]:
    """Those with the project's own client."""
    found = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [example for example in found if "service.client" in example]


def printed(program: str, replaced: dict[str, str]) -> list[str]:
    for written, meant in replaced.items():
        assert written in program
        program = program.replace(written, meant)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120.0, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_examples_without_encryption_translate(serve):
    first, _, asynchronous = examples()
    address = {"127.0.0.1:50051": serve().address}

    german, english, *streamed, scored = printed(first, address)
    assert "Katze" in german
    assert "cat" in english
    assert float(scored.split()[0]) < 0.0
    assert sorted(line.split()[0] for line in streamed) == ["0", "1"]

    german, one, two = printed(asynchronous, address)
    assert "Katze" in german
    assert ("Ein" in one, "Zwei" in two) == (True, True)


def test_the_example_with_tls_and_a_key_translates_and_tells_errors_apart(serve, tmp_path):
    authority, keys = Authority(tmp_path, "ca"), Keys(tmp_path / "keys.toml")
    pair = authority.issue("server")
    server = serve(
        DRAGOMAN_SECURITY__TLS_CERTIFICATE=str(pair.certificate),
        DRAGOMAN_SECURITY__TLS_KEY=str(pair.key),
        DRAGOMAN_SECURITY__API_KEYS=str(keys.file),
    )
    _, example, _ = examples()
    replaced = {
        '"..."': f'"{keys.shop}"',
        "ca.pem": str(authority.certificate),
        "translate.example:50051": server.address,
    }

    good, too_long = printed(example, replaced)
    assert "Katze" in good
    assert "at most" in too_long

    (refused,) = printed(example.replace('["The cat sleeps.", "x " * 9_999]', '["a"] * 999'), replaced)
    assert refused.startswith("texts ")

    (unreachable,) = printed(
        example.replace("timeout_s=5", "timeout_s=1"), replaced | {"translate.example:50051": "127.0.0.1:1"}
    )
    assert "Connection refused" in unreachable
