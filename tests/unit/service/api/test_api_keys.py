"""API keys: the file's rules, and finding a key."""

import hmac
import itertools
from datetime import UTC, datetime, timedelta
from hmac import compare_digest

import pytest

from service.api.auth import digest_of, find_key, generate_key, parse_keys

KEY, OTHER = generate_key(), generate_key()


def entry(key: str = KEY, *lines: str, name: str = "shop") -> str:
    return "\n".join(["[[keys]]", f'name = "{name}"', f'sha256 = "{digest_of(key)}"', *lines, ""])


class TestKey:
    def test_keys_have_256_random_bits_and_a_prefix_that_scanners_find(self):
        assert KEY.startswith("dragoman_")
        assert len(KEY) == len("dragoman_") + 43  # 32 bytes in base64
        assert KEY != OTHER

    def test_found_by_the_key_and_by_nothing_near_it(self):
        keys = parse_keys(entry())

        found = find_key(keys, KEY)
        assert found is not None
        assert found.caller.name == "shop"
        assert [find_key(keys, near) for near in (OTHER, KEY[:-1], KEY + "a", "", KEY.upper(), "\udc80", "ä")] == [
            None
        ] * 7

    def test_every_digest_is_compared_in_constant_time(self, monkeypatch):
        compared = []

        def compare(left: str, right: str) -> bool:
            compared.append(right)
            return compare_digest(left, right)

        monkeypatch.setattr(hmac, "compare_digest", compare)
        third = generate_key()
        find_key(parse_keys(entry() + entry(OTHER) + entry(third)), KEY)

        assert compared == [digest_of(key) for key in (KEY, OTHER, third)]

    def test_the_digest_itself_is_no_key(self):
        assert find_key(parse_keys(entry()), digest_of(KEY)) is None


class TestEntry:
    @pytest.mark.parametrize("written", ["2027-01-31", "2027-01-31T00:00:00", "2027-01-31T01:00:00+01:00"])
    def test_expiry_is_a_moment_in_utc_unless_it_says_otherwise(self, written):
        key = find_key(parse_keys(entry(KEY, f"expires = {written}")), KEY)
        moment = datetime(2027, 1, 31, tzinfo=UTC)

        assert key is not None
        assert key.expires == moment
        assert [key.is_expired(moment - timedelta(seconds=1)), key.is_expired(moment)] == [False, True]

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("", "it needs [[keys]] entries, at least one, and nothing else"),
            (f"other = 1\n{entry()}", "and nothing else"),
            ("[[keys]]", "keys[0].name: Field required"),
            (entry() + entry(OTHER, "weigth = 1"), "keys[1].weigth: Unexpected keyword argument"),
            (entry(KEY, "weight = 0"), "keys[0].weight: Input should be greater than 0"),
            (entry(KEY, 'expires = "tomorrow"'), "keys[0].expires"),
            (entry(name="a b"), "keys[0].name: "),
            (entry() + entry(), "two entries have the same sha256"),
            ('[[keys]]\nname = "a"\nsha256 = "abc"', "keys[0].sha256: "),
            ("".join(entry(str(number)) for number in range(1_001)), "it has 1,001 keys, at most 1,000 are accepted"),
        ],
        ids=itertools.count(),  # an id must not hold a random key
    )
    def test_what_is_wrong_is_said_in_one_line(self, text, problem):
        with pytest.raises(ValueError, match=r".") as error:
            parse_keys(text)

        assert problem in str(error.value)
        assert "\n" not in str(error.value)

    def test_a_key_in_the_place_of_its_digest_is_not_repeated(self):
        with pytest.raises(ValueError, match=r"keys\[0\]\.sha256") as error:
            parse_keys(f'[[keys]]\nname = "a"\nsha256 = "{KEY}"')

        assert KEY[9:] not in str(error.value)
