"""A `dragoman serve` that belongs to this process: neither lives without the other."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

from service.commands.options import CONFIG_VARIABLE

_LOOK_S = 0.05  # between two looks for the file of ports


class OwnedServer:
    """A server process that serves; it has what this process has as environment, less DRAGOMAN_CONFIG, and output.

    Its start and its end block.
    """

    def __init__(self, options: Sequence[str], on_death: Callable[[int], None]) -> None:
        """Return when it serves; `lifecycle.start_timeout_s` bounds that.  Linux ties it to the thread that calls this.

        Args:
            options: of `dragoman serve`.
            on_death: called with its exit status when it ends without `stop`, in a thread of its own.

        Raises:
            RuntimeError: it ended before it served.
        """
        self._on_death = on_death
        self._is_stopping = False
        self._folder = TemporaryDirectory(prefix="dragoman-")
        ports_file = Path(self._folder.name) / "ports.json"
        own = ("serve", *options, "--set", f"lifecycle.ports_file={ports_file}")
        command = [sys.executable, "-m", "service.ray_serve", str(os.getpid()), *own]
        environment = {name: value for name, value in os.environ.items() if name != CONFIG_VARIABLE}
        self._process = subprocess.Popen(command, env=environment)
        self.port = self._port_once_serving(ports_file)
        Thread(target=self._watch, name="owned-server", daemon=True).start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def stop(self, within_s: float) -> None:
        """Let it finish its calls and end; kill it after that time."""
        self._is_stopping = True
        self._process.terminate()
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    def _port_once_serving(self, ports_file: Path) -> int:
        while not ports_file.exists():  # another process: beside its end, there is nothing to await
            with suppress(subprocess.TimeoutExpired):
                status = self._process.wait(_LOOK_S)
                self._folder.cleanup()
                raise RuntimeError(f"dragoman serve ended with status {status} before it served; its log says why")
        port: int = json.loads(ports_file.read_text(encoding="utf-8"))["grpc_port"]
        return port

    def _watch(self) -> None:
        status = self._process.wait()
        if not self._is_stopping:
            self._folder.cleanup()
            self._on_death(status)
