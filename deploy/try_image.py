"""Tries a built image the way it will run: `python3 deploy/try_image.py [NAME:TAG]`.

Read-only root file system, no root, no capabilities: starts it, waits for its health check, translates, and sends
SIGTERM while it works. Docker runs it where an engine is there; elsewhere buildah mounts the image and bubblewrap runs
it, on the CPU whatever the image is for. Prints a line for each promise; exit status 1 if one is broken. Standard
library only.
"""

import argparse
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

MAX_UNPACKED_MB = 450
PATIENCE_S = 30.0
SETTINGS = "/opt/dragoman/image.toml"
OF_THE_GPU = "DRAGOMAN_ENGINE__DEVICE=cuda"  # of its image: a file that replaces SETTINGS does not undo it
SENTENCE = "The cat sleeps."
LOAD = [f"In the year {year} the old house by the river had a red door." for year in range(1800, 2000)]


class Check(NamedTuple):
    """One promise, and what was seen of it."""

    name: str
    seen: str
    is_kept: bool


class Sandbox(NamedTuple):
    """The words around what is bound, in front of a command that runs in the image."""

    before: list[str]
    after: list[str]
    is_docker: bool

    def bind(self, path: Path) -> list[str]:
        """The words that show a folder at /tmp/shared."""
        return ["--volume", f"{path}:/tmp/shared"] if self.is_docker else ["--bind", str(path), "/tmp/shared"]


def main() -> int:
    """Try the image; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("image", nargs="?", default="dragoman:cpu")
    parser.add_argument("--gpu", action="store_true", help="the image for GPUs: docker gives it all of them; any size")
    options = parser.parse_args()
    has_broken = False
    image, has_gpu = options.image, options.gpu
    for check in chain(_what_it_says(image, has_gpu=has_gpu), _what_it_does(image, has_gpu=has_gpu)):
        print(f"{'ok  ' if check.is_kept else 'FAIL'}  {check.name}: {check.seen}", flush=True)
        has_broken |= not check.is_kept
    return int(has_broken)


def _what_it_says(image: str, *, has_gpu: bool) -> Iterator[Check]:
    largest_mb = math.inf if has_gpu else MAX_UNPACKED_MB
    described = json.loads(_output("docker", "image", "inspect", image))[0] if _has_docker() else _described(image)
    config, megabytes = described["Config"], described["Size"] / 1e6
    yield Check("unpacked", f"{megabytes:.0f} MB (at most {largest_mb:g})", megabytes <= largest_mb)
    user = config.get("User", "").partition(":")[0]
    yield Check("user", user or "root", user.isdecimal() and int(user) > 0)
    settings = {entry for entry in config.get("Env", []) if entry.startswith("DRAGOMAN_")}
    expected = {f"DRAGOMAN_CONFIG={SETTINGS}"} | ({OF_THE_GPU} if has_gpu else set())
    yield Check("settings in the environment", " ".join(sorted(settings)), settings == expected)
    test = (config.get("Healthcheck") or {}).get("Test", [])
    yield Check("health check", " ".join(test) or "none", test == ["CMD", "dragoman", "health"])


def _described(image: str) -> dict[str, Any]:
    """Of buildah, what `docker image inspect` says."""
    config = json.loads(_output("buildah", "inspect", "--type", "image", image))["Docker"]["config"]
    with _mounted(image) as root:
        size = sum(path.lstat().st_size for path in root.rglob("*") if path.is_symlink() or path.is_file())
    return {"Config": config, "Size": size}


def _what_it_does(image: str, *, has_gpu: bool) -> Iterator[Check]:
    with _sandbox(image, has_gpu=has_gpu) as sandbox, tempfile.TemporaryDirectory() as shared:
        server = _Server(sandbox, Path(shared))
        try:
            yield from _life(server)
        finally:
            server.kill()


def _life(server: "_Server") -> Iterator[Check]:
    began = time.monotonic()
    while server.run("dragoman", "health", "--server", server.address).returncode != 0:
        if time.monotonic() - began > PATIENCE_S:
            yield Check("healthy", f"not within {PATIENCE_S:g} s", False)
            return
    yield Check("healthy", f"after {time.monotonic() - began:.1f} s, read-only, without capabilities", True)
    settings = server.run("dragoman", "serve", "--config", SETTINGS, "--print-config").stdout.splitlines()
    of_file = [line.partition("  ")[0] for line in settings if line.endswith(f"# file {SETTINGS}")]
    yield Check("settings", ", ".join(of_file), {'grpc_host = "0.0.0.0"', 'http_host = "0.0.0.0"'} <= {*of_file})
    text = server.translate([SENTENCE])
    yield Check("translates", f"{SENTENCE} -> {text}", bool(text))
    for name, absent in (("PyTorch", ["python", "-c", "import torch"]), ("compiler", ["gcc", "--version"])):
        yield Check(f"no {name}", " ".join(absent), server.run(*absent).returncode != 0)
    with server.start("dragoman", "translate", "--server", server.address, "--batch-size", "200", *LOAD) as client:
        try:
            server.wait_for_call()
        except TimeoutError as error:
            client.kill()
            yield Check("SIGTERM under load", str(error), False)
            return
        server.terminate()
        lines = client.communicate()[0].splitlines()
    status = server.wait()
    seen = f"exit status {status}, {len(lines)} of {len(LOAD)} lines of the call under way answered"
    yield Check("SIGTERM under load", seen, status == 0 and len(lines) == len(LOAD))


class _Server:
    """The server in its sandbox, and commands beside it."""

    def __init__(self, sandbox: Sandbox, shared: Path) -> None:
        self._sandbox = sandbox
        self._port, self._http_port = _free_port(), _free_port()
        self.address = f"127.0.0.1:{self._port}"
        shared.chmod(0o777)
        self._ports_file = shared / "ports.json"
        self._process = self.start(
            *("dragoman", "serve", "--host", "127.0.0.1", "--port", str(self._port)),
            *(
                "--set",
                "listen.http_host=127.0.0.1",
                "--http-port",
                str(self._http_port),
                "--admin-port",
                str(_free_port()),
            ),
            *("--set", "lifecycle.drain_delay_s=0.2", "--set", "lifecycle.ports_file=/tmp/shared/ports.json"),
            binds=(shared,),
        )

    def start(self, *command: str, binds: Sequence[Path] = ()) -> "subprocess.Popen[str]":
        """The command, with each of `binds` at /tmp/shared."""
        bound = [word for path in binds for word in self._sandbox.bind(path)]
        full = [*self._sandbox.before, *bound, *self._sandbox.after, *command]
        return subprocess.Popen(full, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        with self.start(*command) as process:
            output = process.communicate()[0]
        return subprocess.CompletedProcess(command, process.returncode, output)

    def translate(self, texts: Sequence[str]) -> str:
        return self.run("dragoman", "translate", "--server", self.address, *texts).stdout.strip()

    def wait_for_call(self) -> None:
        """Until a Translate is under way, as the server's metrics say.

        Raises:
            TimeoutError: none was seen.
        """
        deadline = time.monotonic() + PATIENCE_S
        under_way = re.compile(r'^dragoman_requests_in_flight\{.*/Translate".*\} [1-9]', re.MULTILINE)
        while time.monotonic() < deadline:
            if under_way.search(self._metrics()):
                return
            time.sleep(0.02)  # another process: there is nothing to await
        raise TimeoutError(f"no call under way within {PATIENCE_S:g} s")

    def _metrics(self) -> str:
        """The page; empty if there is none now."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._http_port}/metrics", timeout=PATIENCE_S) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def terminate(self) -> None:
        # Docker hands the signal on; bubblewrap does not, but shares our process ids.
        pid = self._process.pid if self._sandbox.is_docker else json.loads(self._ports_file.read_text())["pid"]
        os.kill(pid, signal.SIGTERM)

    def wait(self) -> int:
        return self._process.wait(PATIENCE_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def _sandbox(image: str, *, has_gpu: bool) -> Iterator[Sandbox]:
    if _has_docker():
        flags = "--network host --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges"
        flags += " --gpus all" if has_gpu else ""
        yield Sandbox(["docker", "run", "--rm", "--init", *flags.split()], ["--entrypoint", "", image], is_docker=True)
        return
    with _mounted(image) as root:
        user = "--unshare-user --uid 65532 --gid 65532 --unshare-ipc --cap-drop ALL --die-with-parent"
        files = ["--ro-bind", str(root), "/", *["--tmpfs", "/tmp", "--proc", "/proc", "--dev", "/dev"]]
        path = "/opt/dragoman/bin:/usr/local/bin:/usr/bin:/bin"
        yield Sandbox(["bwrap", *files, *user.split()], ["--clearenv", "--setenv", "PATH", path], is_docker=False)


@contextmanager
def _mounted(image: str) -> Iterator[Path]:
    container = _output("buildah", "from", image)
    try:
        yield Path(_output("buildah", "mount", container))
    finally:
        _output("buildah", "rm", container)


def _has_docker() -> bool:
    return subprocess.run(["sh", "-c", "docker info"], capture_output=True, check=False).returncode == 0


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
