"""`dragoman bulk` against a real server, killed at moments that nobody chose, and inside a write."""

import random
from pathlib import Path

from tests.bulk_proof.runs import BulkRun, Kill, interrupted
from tests.fakes.bulk_runs import bulk, parts_folder
from tests.fakes.own_text import own_sentences

LINES = 3_000


def write_source(file: Path, lines: int) -> Path:
    file.write_text("".join(f"{line}\n" for line in own_sentences(lines)))
    return file


def bulk_run(source: Path, output: Path, address: str) -> BulkRun:
    return BulkRun(source=source, output=output, address=address, options=("--part-size", "50"))


def test_killed_ten_times_the_output_is_that_of_an_undisturbed_run(server, tmp_path):
    source, whole, killed = (tmp_path / name for name in ("in.txt", "whole.txt", "killed.txt"))
    write_source(source, LINES)
    rng = random.Random(3)
    kills = [Kill(after_s=rng.uniform(0.6, 1.2)) for _ in range(10)]  # the start of a process included

    bulk_run(source, whole, server.address).to_end()
    seen = interrupted(bulk_run(source, killed, server.address), kills, print)

    assert seen.killed
    assert killed.read_bytes() == whole.read_bytes()
    assert not parts_folder(killed).exists()


def test_killed_inside_a_write_a_part_is_not_there_and_is_made_again(server, tmp_path):
    source, output = write_source(tmp_path / "in.txt", 200), tmp_path / "out.txt"

    (killed,) = interrupted(bulk_run(source, output, server.address), [Kill(in_write=3)], print).killed

    lines = source.read_text().splitlines(keepends=True)
    assert (killed.parts, killed.draft) == (2, (2, len("".join(lines[100:150])) // 2))
    assert output.read_text() == "".join(lines)  # the echo runner's translation
    assert not parts_folder(output).exists()


def test_a_missing_server_costs_nothing_that_was_done(tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("one\n")

    with bulk(source, tmp_path / "out.txt", "127.0.0.1:1", "--max-outage", "1") as process:
        error = process.stderr.read() if process.stderr else ""
        code = process.wait(timeout=30)

    assert code == 3
    assert "127.0.0.1:1" in error
    assert not (tmp_path / "out.txt").exists()
