"""Glossaries of callers, in a directory."""

import errno

import pytest

from service.call import Caller
from service.config import ConfigError
from service.errors import InvalidInput, NotFound, Overloaded
from service.records import Term
from service.translate import glossaries as module
from service.translate.glossaries import UploadedGlossaries

SHOP, OTHER = Caller(name="shop", source="key"), Caller(name="shop", source="peer")
TERMS = [Term("cat", "Kater")]


async def test_every_process_of_a_server_finds_what_one_has_kept(tmp_path):
    made = await UploadedGlossaries(tmp_path).create(SHOP, "mine", "en", "de", TERMS)
    others = UploadedGlossaries(tmp_path)

    assert await others.named([made.id], SHOP, "de-AT") == ("", tuple(TERMS))
    assert await others.all_of(SHOP) == [made]
    assert await others.all_of(OTHER) == []
    (file,) = tmp_path.glob("*/*.json")
    assert file.stat().st_mode & 0o777 == 0o600


async def test_name_that_is_no_id_is_one_of_the_servers_glossaries(tmp_path):
    for name in ("animals", "../../etc/passwd"):
        assert await UploadedGlossaries(tmp_path).named([name], SHOP, "de") == (name, ())
        with pytest.raises(NotFound):
            await UploadedGlossaries(tmp_path).find(name, SHOP)


async def test_of_several_glossaries_the_first_that_has_a_term_counts_and_one_may_be_the_servers(tmp_path):
    glossaries = UploadedGlossaries(tmp_path)
    first = await glossaries.create(SHOP, "first", "en", "de", TERMS)
    second = await glossaries.create(SHOP, "second", "en", "de", [Term("cat", "Katze"), Term("dog", "Rüde")])

    name, terms = await glossaries.named([first.id, "animals", second.id], SHOP, "de")

    assert (name, set(terms)) == ("animals", {Term("cat", "Kater"), Term("dog", "Rüde")})
    with pytest.raises(InvalidInput, match="2 of the glossaries"):
        await glossaries.named(["animals", "plants"], SHOP, "de")


async def test_number_of_glossaries_and_of_their_owners_is_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_OWN", 2)
    monkeypatch.setattr(module, "MAX_OWNERS", 1)
    glossaries = UploadedGlossaries(tmp_path)
    for _ in range(2):
        await glossaries.create(SHOP, "mine", "en", "de", TERMS)

    for caller in (SHOP, OTHER):
        with pytest.raises(Overloaded, match="at most"):
            await glossaries.create(caller, "mine", "en", "de", TERMS)


async def test_full_disc_is_a_refusal_that_says_so(tmp_path, monkeypatch):
    def write(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "write_whole", write)

    with pytest.raises(Overloaded, match="cannot store glossaries now: No space left on device"):
        await UploadedGlossaries(tmp_path).create(SHOP, "mine", "en", "de", TERMS)


def test_directory_that_is_not_there_stops_the_start(tmp_path):
    with pytest.raises(ConfigError, match="no directory"):
        UploadedGlossaries(tmp_path / "none")
