"""`dragoman keys new`: what it prints and what it writes."""

import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service import files
from service.cli import keys_command, keys_run
from service.cli.keys_run import NewKey, append_entry, entry_of, run_new_key
from service.grpc.api_keys import parse_keys
from service.queue.callers import Priority


def test_key_and_entry_are_printed_where_no_file_takes_the_entry(capsys):
    run_new_key(NewKey(name="shop"))

    key, _, entry = capsys.readouterr().out.partition("\n")
    found = parse_keys(entry).find(key)
    assert found is not None
    assert found.client.name == "shop"
    assert key not in entry


def test_file_is_made_for_its_owner_alone_and_takes_more_entries(tmp_path, capsys):
    file = tmp_path / "keys.toml"

    for name in ("one", "two"):
        run_new_key(NewKey(name=name), file)

    ring = parse_keys(file.read_text())
    found = [ring.find(key) for key in capsys.readouterr().out.splitlines()]
    assert [key.client.name for key in found if key] == ["one", "two"]
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [file]


def test_whoever_comes_while_an_entry_is_added_waits_and_overwrites_nothing(tmp_path, monkeypatch):
    file = tmp_path / "keys.toml"
    append_entry(file, entry_of(NewKey(name="first"), "1"))

    def write_whole(path: Path, content: bytes, mode: int) -> None:
        between.setattr(keys_run, "write_whole", files.write_whole)
        with pytest.raises(TimeoutError, match="locked by another"):
            append_entry(file, entry_of(NewKey(name="third"), "3"))
        files.write_whole(path, content, mode)

    with monkeypatch.context() as between:
        between.setattr(keys_run, "_LONGEST_WAIT_S", 0.02, raising=False)
        between.setattr(keys_run, "write_whole", write_whole)
        append_entry(file, entry_of(NewKey(name="second"), "2"))
    append_entry(file, entry_of(NewKey(name="third"), "3"))

    found = [parse_keys(file.read_text()).find(key) for key in ("1", "2", "3")]
    assert [key.client.name for key in found if key] == ["first", "second", "third"]
    assert list(tmp_path.iterdir()) == [file]


def test_file_in_a_directory_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError):
        run_new_key(NewKey(name="shop"), tmp_path / "gone" / "keys.toml")

    assert list(tmp_path.iterdir()) == []


def test_entry_has_every_right_that_is_given():
    new = NewKey(
        name="x",
        priority="batch",
        weight=2.0,
        max_queued_tokens=9,
        models=('a"b\\c', "ä\n"),
        admin=True,
        expires=datetime(2027, 1, 31, tzinfo=UTC),
    )

    (entry,) = tomllib.loads(entry_of(new, "key"))["keys"]

    del entry["sha256"]
    assert entry == {
        "name": "x",
        "priority": "batch",
        "weight": 2.0,
        "max_queued_tokens": 9,
        "models": ['a"b\\c', "ä\n"],
        "admin": True,
        "expires": datetime(2027, 1, 31, tzinfo=UTC),
    }


@pytest.mark.parametrize("new", [NewKey(name="a b"), NewKey(name="a", weight=0.0), NewKey(name="a", priority="urgent")])
def test_value_that_no_entry_may_have_is_refused(new, tmp_path, capsys):
    file = tmp_path / "keys.toml"

    with pytest.raises(ValueError, match=r"keys\[0\]"):
        run_new_key(new, file)

    assert not file.exists()
    assert capsys.readouterr().out == ""


def test_file_that_holds_something_else_is_left_as_it_is(tmp_path):
    file = tmp_path / "dragoman.toml"
    file.write_text("[listen]\n")

    with pytest.raises(ValueError, match=f"{file} is left as it is"):
        run_new_key(NewKey(name="shop"), file)

    assert file.read_text() == "[listen]\n"


def test_every_option_of_the_command_arrives(tmp_path):
    file = tmp_path / "keys.toml"
    options = "--priority batch --weight 2 --max-queued-tokens 9 --model a --model b --admin --expires 2027-01-31"

    result = CliRunner().invoke(keys_command.app, ["new", "shop", "--file", str(file), *options.split()])

    assert result.exit_code == 0
    key = parse_keys(file.read_text()).find(result.output.strip())
    assert key is not None
    assert (key.client.priority, key.client.weight, key.client.max_queued_tokens) == (Priority.BATCH, 2.0, 9)
    assert (key.models, key.is_admin, key.expires) == (frozenset("ab"), True, datetime(2027, 1, 31, tzinfo=UTC))


def test_wrong_value_is_one_line_and_exit_code_2():
    result = CliRunner().invoke(keys_command.app, ["new", "no spaces"])

    assert result.exit_code == 2
    assert result.stderr.startswith("dragoman: keys[0].name: ")
    assert result.stderr.count("\n") == 1
