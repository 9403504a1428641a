"""An engine process without its front process, and what its records cost the front process."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from service.engine.job import to_frame
from service.engine.process import command_line, environment
from service.engine.spec import EngineSpec


@pytest.mark.parametrize("factory", ["tests.fakes.fake_runner:create", "no.such:module"], ids=["ready", "not started"])
def test_engine_ends_quietly_when_its_report_finds_the_front_process_gone(factory):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        engine = subprocess.Popen(
            command_line(theirs.fileno()),
            pass_fds=[theirs.fileno()],
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        ours.shutdown(socket.SHUT_RD)  # its reports find nobody, and it reads no end that would tell it first
        ours.sendall(to_frame(EngineSpec(bundle_dir=Path("bundle"), runner_factory=factory, heartbeat_interval_s=0.01)))

        _, complaints = engine.communicate(timeout=60)

    assert (engine.returncode, complaints) == (0, b"")


def test_front_process_loads_neither_numpy_nor_onnx_runtime_for_its_records():
    program = (
        "import sys, service.engine.process; print(*{'numpy', 'onnxruntime', 'torch', 'asyncio'} & set(sys.modules))"
    )

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert loaded.stdout.split() == []
