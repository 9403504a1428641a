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


def test_remarks_that_cannot_be_printed_change_no_result(server):
    translated = redirected("2> /dev/full", "translate", "--server", server.address, "one")
    failed = redirected("2> /dev/full", "health", "--server", "127.0.0.1:1")

    assert (translated.returncode, translated.stdout) == (0, "one\n")
    assert failed.returncode == 1
