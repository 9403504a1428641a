"""`python -m trials.clients`: clients of other services, unmodified, against real servers; a table and one JSON line.

Every file use_*.py beside this one is a client.  They run in an environment of their own (`make try-clients`), since
what they need has no place in that of the server.  At last schemathesis asks what the description at /spec allows.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.table import Table

from service.api.auth import generate_key
from service.cli.keys import append_entry, entry_of
from tests.fakes.echo_bundle import ModelRepository
from tests.fakes.http_requests import ask, post
from tests.fakes.server_process import ServerProcess, start
from trials.clients.cases import MORE, NAMES

HERE = Path(__file__).parent
COMMANDS = {
    "libretranslatepy": ["use_libretranslatepy.py", "libretranslatepy"],
    "Argos Translate": ["use_libretranslatepy.py", "argostranslate.apis"],
    "libretranslate-aio": ["use_libretranslate_aio.py"],
    "deepl": ["use_deepl.py"],
    "Mastodon": ["use_mastodon.py"],
    "Discourse": ["use_discourse.py"],
    "google-cloud-translate": ["use_google.py"],
    "tritonclient": ["use_tritonclient.py"],
}
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


class Servers:
    """An open server, one that asks for a key, and one with room for a single call, which is taken."""

    def __init__(self, directory: Path) -> None:
        repository = ModelRepository(directory / "models")
        for source, target in (("en", "de"), ("de", "en")):
            repository.put(f"{source}-{target}", "1", languages=(source, target))
        keys = directory / "keys.toml"
        self.key = generate_key()
        append_entry(keys, entry_of(self.key, "shop"))
        (directory / "glossaries").mkdir()
        models = {
            "DRAGOMAN_MODELS__DIRECTORY": str(repository.directory),
            "DRAGOMAN_MODELS__UPLOADED_GLOSSARIES": str(directory / "glossaries"),
        }
        full = {"DRAGOMAN_LIMITS__MAX_CONCURRENT_REQUESTS": "1", "ECHO_STEP_S": "1"}
        self.open = self._start(directory / "open", models)
        self.guarded = self._start(directory / "guarded", {**models, "DRAGOMAN_SECURITY__API_KEYS": str(keys)})
        self.full = self._start(directory / "full", {**models, **full})
        threading.Thread(target=self._fill, daemon=True).start()
        while not self.full.metric("dragoman_running_jobs"):
            time.sleep(0.05)

    def _start(self, directory: Path, settings: dict[str, str]) -> ServerProcess:
        directory.mkdir()
        return start(None, directory, **settings)

    def _fill(self) -> None:
        with suppress(OSError):  # until the server is killed
            while True:
                post(self.full.http_port, "/translate", q="many words " * 20, source="en", target="de")

    def environment(self) -> dict[str, str]:
        ports = {"OPEN": self.open, "GUARDED": self.guarded, "FULL": self.full}
        urls = {f"{name}_URL": f"http://127.0.0.1:{server.http_port}" for name, server in ports.items()}
        grpc = {f"{name}_GRPC": server.address for name, server in ports.items()}
        return {**os.environ, **urls, **grpc, "KEY": self.key, "PYTHONPATH": str(HERE)}

    def stop(self) -> None:
        for server in (self.open, self.guarded, self.full):
            server.process.kill()
            server.process.wait()


def outcomes_of(python: str, command: list[str], environment: dict[str, str]) -> dict[str, str]:
    done = subprocess.run(
        [python, HERE / command[0], *command[1:]],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    lines = done.stdout.splitlines()
    return json.loads(lines[-1]) if lines else dict.fromkeys(NAMES, f"FAILED: {done.stderr[-400:]}")


def schemathesis(python: str, servers: Servers, examples: int) -> tuple[int, str]:
    """Number of requests, and what was wrong; empty: nothing."""
    paths = ask(servers.open.http_port, "GET", "/spec").json()["paths"]
    num_operations = sum(map(len, paths.values()))
    url = f"http://127.0.0.1:{servers.open.http_port}/spec"
    each = str(max(1, examples // num_operations))
    environment = {**servers.environment(), "SCHEMATHESIS_HOOKS": "schema_hooks"}
    done = subprocess.run(
        [Path(python).absolute().parent / "schemathesis", "run", url, "--checks", CHECKS, "--max-examples", each],
        env=environment,
        capture_output=True,
        text=True,
        cwd=HERE,
        check=False,
    )
    generated = re.search(r"([\d,]+) generated", done.stdout)
    number = int(generated[1].replace(",", "")) if generated else 0
    return number, "" if done.returncode == 0 and number else f"{done.stdout[-4_000:]}{done.stderr[-1_000:]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="of the clients' environment")
    parser.add_argument("--examples", type=int, default=300, help="of schemathesis, over all operations")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        servers = Servers(Path(directory))
        try:
            environment = servers.environment()
            outcomes = {name: outcomes_of(options.python, line, environment) for name, line in COMMANDS.items()}
            number, problems = schemathesis(options.python, servers, options.examples)
        finally:
            servers.stop()
    table = Table("client", *NAMES, *MORE)
    for name, cases in outcomes.items():
        table.add_row(
            name, *(cases.get(case, "FAILED: not run") for case in NAMES), *(cases.get(case, "-") for case in MORE)
        )
    Console().print(table)
    print(problems or f"schemathesis: {number} requests, all answers as described, none 500 or above")
    has_failed = any(case.startswith("FAILED") for cases in outcomes.values() for case in cases.values())
    print(json.dumps({"clients": outcomes, "requests": number, "ok": not (has_failed or problems)}))
    return int(bool(has_failed or problems))


if __name__ == "__main__":
    sys.exit(main())
