"""`dragoman tune` as a user runs it: real engines, and a file that the server takes."""

import json
import subprocess
import sys
from pathlib import Path

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
    settings = json.loads(dragoman(echo_bundle, "serve", "--config", str(output), "--check-config").stdout)["engine"]

    assert (first.returncode, first.stderr) == (0, "")
    assert "chosen: " in first.stdout
    assert settings["bundle"] == str(echo_bundle)
    assert f"num_engines = {settings['num_engines']}\nthreads = {settings['threads']}" in written
    assert settings["max_rows"] >= 32
    assert second.returncode == 2
    assert f"dragoman: {output} exists: --force replaces it" in second.stderr
    assert output.read_text() == written


def test_tune_that_finds_nothing_says_why(echo_bundle, tmp_path):
    result = dragoman(echo_bundle, "tune", "--seconds", "1", "--bundle", str(tmp_path))

    assert (result.returncode, result.stdout) == (2, "")
    assert "is not a bundle" in result.stderr
