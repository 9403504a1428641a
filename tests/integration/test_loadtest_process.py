"""`dragoman loadtest` and `dragoman health` against a real server."""

import json
import os
import signal
import subprocess
import sys
import time


def dragoman(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "service", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_open_loop_sends_every_call_and_reports_it(server, tmp_path):
    report = tmp_path / "report.json"

    done = dragoman(
        *("loadtest", "--server", server.address, "--rate", "50", "--duration", "2", "--warm-up", "0.5"),
        *("--arrivals", "constant", "--workers", "2", "--report", str(report)),
    )

    assert done.returncode == 0, done.stderr
    (stage,) = json.loads(report.read_text())["stages"]
    assert (stage["calls"], stage["codes"]) == (75, {"OK": 75})


def test_ctrl_c_ends_quietly_with_the_finished_stages(server, tmp_path):
    file = tmp_path / "report.json"
    answered_before = server.metric("dragoman_requests_total", code="OK")
    heeding = ("env", "--default-signal=INT")  # a shell without job control has what it starts with & ignore Ctrl-C
    command = [*heeding, sys.executable, "-m", "service", "loadtest"]
    command += ["--server", server.address, "--report", str(file)]
    rates = ("--rate", "20", *(9 * ("--rate", "50")))  # of these nine, a busy machine may finish some
    stages = (*rates, "--duration", "2", "--warm-up", "0", "--workers", "1")
    process = subprocess.Popen(
        [*command, *stages], start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 300.0
    while server.metric("dragoman_requests_total", code="OK") < answered_before + 43:  # in the second stage
        assert time.monotonic() < deadline
        time.sleep(0.02)  # another process: there is nothing to await

    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    printed, errors = process.communicate(timeout=120.0)

    assert (process.returncode, errors) == (130, "")
    assert "ended early; in the finished stages at most" in printed
    finished = json.loads(file.read_text())["stages"]
    assert finished[0]["codes"] == {"OK": 40}
    assert len(finished) < 10


def test_health_says_whether_a_server_serves(server):
    good, bad = dragoman("health", "--server", server.address), dragoman("health", "--server", "127.0.0.1:1")

    assert (good.returncode, good.stdout, good.stderr) == (0, "", "")
    assert bad.returncode == 1
    assert bad.stderr.startswith("dragoman: 127.0.0.1:1 does not answer: UNAVAILABLE: ")
