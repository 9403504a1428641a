"""`dragoman keys new`: what it prints and what it writes."""

import shlex
import tomllib
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from model import files
from service.api.auth import find_key, parse_keys
from service.cli import keys
from service.cli.keys import append_entry, entry_of
from service.records import Priority


def new(*arguments: str) -> Result:
    return CliRunner().invoke(keys.app, ["new", *arguments])


def test_key_and_entry_are_printed_where_no_file_takes_the_entry():
    key, _, entry = new("shop").stdout.partition("\n")

    found = find_key(parse_keys(entry), key)
    assert found is not None
    assert found.caller.name == "shop"
    assert key not in entry


def test_file_is_made_for_its_owner_alone_and_takes_more_entries(tmp_path):
    file = tmp_path / "keys.toml"

    printed = [new(name, "--file", str(file)).stdout.strip() for name in ("one", "two")]

    found = [find_key(parse_keys(file.read_text()), key) for key in printed]
    assert [key.caller.name for key in found if key] == ["one", "two"]
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [file]


def test_whoever_comes_while_an_entry_is_added_waits_and_overwrites_nothing(tmp_path, monkeypatch):
    file = tmp_path / "keys.toml"
    with ThreadPoolExecutor(2) as pool:
        later: list[Future[None]] = []

        def write_whole(path: Path, content: bytes, *, new_mode: int) -> None:
            if not later:
                later.append(pool.submit(append_entry, file, entry_of("2", "second")))
                assert wait(later, timeout=0.05).not_done  # it waits for the lock
            files.write_whole(path, content, new_mode=new_mode)

        monkeypatch.setattr(keys, "write_whole", write_whole)
        append_entry(file, entry_of("1", "first"))
        later[0].result(10)

    found = [find_key(parse_keys(file.read_text()), key) for key in ("1", "2")]
    assert [key.caller.name for key in found if key] == ["first", "second"]
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_to_the_file_takes_an_entry_and_both_stay_what_they_are(tmp_path):
    file, link = tmp_path / "keys.toml", tmp_path / "link.toml"
    new("one", "--file", str(file))
    file.chmod(0o640)
    link.symlink_to("keys.toml")

    key = new("two", "--file", str(link)).stdout.strip()

    assert find_key(parse_keys(file.read_text()), key) is not None
    assert (link.is_symlink(), file.stat().st_mode & 0o777) == (True, 0o640)


def test_a_pipe_or_device_gets_the_entry_and_stays():
    made = new("one", "--file", "/dev/null")

    assert (made.exit_code, made.stderr, len(made.stdout.splitlines())) == (0, "", 1)
    assert Path("/dev/null").is_char_device()


def test_any_character_of_a_name_is_written_so_that_toml_reads_it():
    (entry,) = tomllib.loads(entry_of("key", "x", models=['a"b\\c', "ä\n"]))["keys"]

    assert entry["models"] == ['a"b\\c', "ä\n"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("'a b'", "keys[0].name: "),
        ("a --priority urgent", "--priority is 'urgent', there are interactive and batch"),
        ("a --file gone/keys.toml", "gone"),
        ("a --file dragoman.toml", "dragoman.toml is left as it is"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_2_and_changes_nothing(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dragoman.toml").write_text("[listen]\n")

    result = new(*shlex.split(arguments))

    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert [file.read_text() for file in tmp_path.iterdir()] == ["[listen]\n"]


def test_key_that_would_never_be_good_is_not_made(tmp_path):
    result = new("shop", "--file", str(tmp_path / "keys.toml"), "--expires", "2020-01-31")

    assert (result.exit_code, result.stderr) == (
        2,
        "dragoman: --expires is 2020-01-31 00:00:00+00:00, which has passed\n",
    )
    assert list(tmp_path.iterdir()) == []


def test_every_option_of_the_command_arrives(tmp_path):
    file = tmp_path / "keys.toml"
    options = "--priority batch --weight 2 --max-queued-tokens 9 --model a --model b --admin --expires 2999-01-31"

    result = new("shop", "--file", str(file), *options.split())

    key = find_key(parse_keys(file.read_text()), result.stdout.strip())
    assert key is not None
    assert (key.caller.priority, key.caller.weight, key.caller.max_queued_tokens) == (Priority.BATCH, 2.0, 9)
    assert (key.models, key.admin, key.expires) == (frozenset("ab"), True, datetime(2999, 1, 31, tzinfo=UTC))
