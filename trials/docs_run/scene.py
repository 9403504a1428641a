"""A scratch directory that looks like a checkout with a reader's files, the servers, and one step run there."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from model.bundle import Bundle, default_bundle_dir
from service.models.info import describe
from tests.fakes.certificates import Authority
from tests.fakes.own_text import own_sentences
from trials.docs_run.pages import ROOT, Step, program_of
from trials.docs_run.rules import SERVES, reason_to_leave_out, runnable

_WITHIN_S = 600.0  # on a busy machine, too
_OF_THE_SHELL = {"umask"}
_KEPT = 200  # characters of what a step that failed has said
_PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
_GRPC, _HTTP, _ADMIN, _TLS = "127.0.0.1:50051", "127.0.0.1:8080", "127.0.0.1:50052", "translate.example:50051"


class StepFailed(Exception):
    """A step did not do what a reader expects of it."""


class NotRun(Exception):
    """A step was left out; says why."""


class Scene:
    """Where the steps of one page are run; servers go on until the page ends, as in a reader's other terminal."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: list[tuple[subprocess.Popen[bytes], int]] = []  # each with its own process' id, below a shell's
        self._addresses: dict[str, str] = {}  # what stands for the last server with TLS, and for the last one without

    def begin(self) -> str:
        """Furnish it, and start the servers that a page takes for granted."""
        _furnish(self._folder)
        self._serve(
            "dragoman serve --set security.tls_certificate=chain.pem --set security.tls_key=key.pem --engines 1"
        )
        return self._serve("dragoman serve")

    def close(self) -> str:
        """End the servers as an operator would; raises StepFailed if one does not end well."""
        servers, self._servers = self._servers, []
        for process, pid in servers:
            if process.poll() is None:
                os.kill(pid, signal.SIGTERM)
        if any(codes := [process.wait(_WITHIN_S) for process, _ in servers]):
            raise StepFailed(f"servers ended with {codes}")
        return "all servers ended with 0"

    def run(self, step: Step) -> str:
        """What came of it; raises StepFailed if it went wrong, and NotRun if it was left out."""
        if reason := reason_to_leave_out(step.text):
            raise NotRun(reason)
        if step.kind == "python":
            return self._run(sys.executable, "-c", runnable(step.text, self._addresses))
        if step.kind == "settings":
            (self._folder / "dragoman.toml").write_text(runnable(step.text, {}))
            return self._run("bash", "-c", "dragoman serve --config dragoman.toml --check-config")
        program = "ray" if "--engine ray" in step.text else program_of(step.text)
        if program not in _OF_THE_SHELL and not shutil.which(program, path=_PATH):
            raise NotRun(f"{program} is not installed here")
        command = runnable(step.text, self._addresses)
        return self._serve(command) if SERVES.match(command) else self._run("bash", "-o", "pipefail", "-c", command)

    def _run(self, *words: str) -> str:
        began, environment = time.monotonic(), self._environment()
        try:
            done = subprocess.run(
                words, cwd=self._folder, env=environment, capture_output=True, timeout=_WITHIN_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise StepFailed(f"not done within {_WITHIN_S:g} s") from None
        if done.returncode:
            said = (done.stderr or done.stdout).decode(errors="replace")  # openssl shows what a server sends: any bytes
            raise StepFailed(f"exit code {done.returncode}: {said.strip()[-_KEPT:]}")
        return f"done in {time.monotonic() - began:.1f} s"

    def _serve(self, command: str) -> str:
        """Start a server that goes on; the commands after it mean this one."""
        began, number = time.monotonic(), len(self._servers)
        ports_file, log = self._folder / f"ports-{number}.json", self._folder / f"server-{number}.log"
        environment = self._environment() | {"DRAGOMAN_LIFECYCLE__PORTS_FILE": str(ports_file)}
        with log.open("w") as out:
            process = subprocess.Popen(
                ["bash", "-c", command], cwd=self._folder, env=environment, stdout=out, stderr=out
            )
        while not ports_file.exists():  # another process: there is nothing to await
            if process.poll() is not None or time.monotonic() - began > _WITHIN_S:
                process.kill()
                raise StepFailed(f"did not serve: {log.read_text().strip()[-_KEPT:]}")
            time.sleep(0.02)
        ports = json.loads(ports_file.read_text())
        self._servers.append((process, ports["pid"]))
        grpc, http, admin = (f"127.0.0.1:{ports[f'{name}_port']}" for name in ("grpc", "http", "admin"))
        plain = {_GRPC: grpc, _HTTP: http, "REPLICA:8080": http, _ADMIN: admin, " PID": f" {ports['pid']}"}
        self._addresses |= {_TLS: grpc} if "tls" in command else plain
        return f"serving after {time.monotonic() - began:.1f} s"

    def _environment(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if not name.startswith("DRAGOMAN_")} | {
            "PATH": _PATH,
            "PYTHONPATH": str(ROOT),
            "DRAGOMAN_SERVER": self._addresses.get(_GRPC, ""),
            "DRAGOMAN_ADMIN_SERVER": self._addresses.get(_ADMIN, ""),
            **{f"DRAGOMAN_LISTEN__{name}_PORT": "0" for name in ("GRPC", "HTTP", "ADMIN")},
        }


def _furnish(folder: Path) -> None:
    """Give a reader's files their names in the documents."""
    for entry in ROOT.iterdir():
        if not entry.name.startswith("."):
            (folder / entry.name).symlink_to(entry)
    for name, count in (("english.txt", 20), ("SENTENCES.en", 330)):
        (folder / name).write_text("".join(f"{sentence}\n" for sentence in own_sentences(count)))
    (folder / "german.txt").write_text("Die Katze schläft.\n" * 20)
    (folder / "dragoman.toml").write_text("[limits]\nmax_texts = 64\n")
    parquet.write_table(pa.table({"text": own_sentences(20)}), folder / "corpus.parquet")
    info = describe(Bundle.load(included := default_bundle_dir()), None)
    for copy in (folder / "BUNDLE", folder / "RUN" / "average", folder / "MODELS" / info.name / info.version):
        shutil.copytree(included, copy)
    authority = Authority(folder, "ours")
    server, client = authority.issue("server"), authority.issue("client", "client.example")
    for pair, certificate, key in ((server, "chain.pem", "key.pem"), (client, "client.pem", "client-key.pem")):
        pair.certificate.rename(folder / certificate)
        pair.key.rename(folder / key)
    for name in ("ca.pem", "clients.pem"):
        (folder / name).write_bytes(authority.pem)
