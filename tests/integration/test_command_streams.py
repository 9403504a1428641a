"""Commands whose standard input, output or error is closed, full, or a pipe that nobody reads."""

import os
import subprocess
import sys

import pytest

COMMAND = (sys.executable, "-m", "service")


def redirected(redirection: str, *words: str) -> "subprocess.CompletedProcess[str]":
    shell = ("sh", "-c", f'"$@" {redirection}', "sh", *COMMAND, *words)
    return subprocess.run(shell, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize(
    ("words", "redirection", "message"),
    [
        (("version",), ">&-", "it is closed"),
        (("health", "--help"), ">&-", "it is closed"),
        (("keys", "new", "a"), "> /dev/full", "No space left on device"),
    ],
)
def test_a_result_that_cannot_be_printed_is_one_line_and_exit_code_2(words, redirection, message):
    done = redirected(redirection, *words)

    assert (done.returncode, done.stderr) == (2, f"dragoman: standard output: {message}\n")


def test_a_result_that_nobody_reads_ends_the_command_without_a_word():
    reading, writing = os.pipe()
    os.close(reading)

    done = subprocess.run(
        [*COMMAND, "version"], stdout=writing, stderr=subprocess.PIPE, text=True, check=False, timeout=300
    )
    os.close(writing)

    assert (done.returncode, done.stderr) == (141, "")


def test_lines_from_an_input_that_is_closed_are_an_error_that_says_so():
    closed = redirected("<&-", "translate")

    assert (closed.returncode, closed.stderr) == (2, "dragoman: standard input: it is closed\n")


def test_remarks_that_cannot_be_printed_change_no_result(server):
    translated = redirected("2> /dev/full", "translate", "--server", server.address, "one")
    failed = redirected("2> /dev/full", "health", "--server", "127.0.0.1:1")

    assert (translated.returncode, translated.stdout) == (0, "one\n")
    assert failed.returncode == 1


def test_remarks_without_a_standard_error_get_into_no_socket(server, tmp_path):
    output = tmp_path / "out.txt"
    (tmp_path / "in.txt").write_text("one\ntwo\n")

    bulk = redirected("<&- 2>&-", "bulk", str(tmp_path / "in.txt"), str(output), "--server", server.address)

    assert (bulk.returncode, output.read_text()) == (0, "one\ntwo\n")


def test_a_status_that_is_shown_anew_ends_with_its_reader(start_server):
    server = start_server("--admin-port", "0")

    done = redirected("| head -n 1", "status", "--watch", "--server", f"127.0.0.1:{server.admin_port}")

    assert done.stderr == ""
    assert done.stdout.startswith("dragoman ")
