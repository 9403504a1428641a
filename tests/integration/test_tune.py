"""`dragoman tune` as a user runs it: real engines, and a file that the server takes."""

import subprocess
import sys
from pathlib import Path

from service.config import load_config
from tests.fakes.server_process import environment


def dragoman(bundle: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "service", *arguments],
        env=environment(bundle, ECHO_STEP_S="0.002"),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_tune_writes_what_serve_takes_and_does_not_write_over_it(echo_bundle, tmp_path):
    output = tmp_path / "dragoman.toml"
    tune = ("tune", "--bundle", str(echo_bundle), "--seconds", "6", "--output", str(output))

    first = dragoman(echo_bundle, *tune)
    written = output.read_text()
    second = dragoman(echo_bundle, *tune)
    engine = load_config(output).engine

    assert (first.returncode, first.stderr) == (0, "")
    assert "chosen: " in first.stdout
    assert engine.bundle == echo_bundle
    assert f"num_engines = {engine.num_engines}  # of each model that is served" in written
    assert f"threads = {engine.threads}  # per engine" in written
    assert "measured: echo 1.2.3" in written
    assert engine.max_rows in {32, 64, 128, 256}
    assert second.returncode == 2
    assert f"dragoman: {output} exists: --force replaces it" in second.stderr
    assert output.read_text() == written


def test_tune_that_finds_nothing_says_why(echo_bundle, tmp_path):
    result = dragoman(echo_bundle, "tune", "--seconds", "1", "--bundle", str(tmp_path))

    assert (result.returncode, result.stdout) == (2, "")
    assert "is not a bundle" in result.stderr
