"""Who may call what, and in whose name: keys, their file, and the word of a proxy."""

import hmac
import itertools
from datetime import UTC, datetime, timedelta
from hmac import compare_digest
from pathlib import Path

import pytest

from service.api.auth import (
    Authenticator,
    digest_of,
    find_key,
    generate_key,
    parse_keys,
    trusted_proxies,
    watch_keys,
)
from service.config import ConfigError, SecurityConfig
from service.errors import PermissionDenied, Unauthenticated

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


TRANSLATE = "dragoman.v1.TranslationService/Translate"
STATUS = "dragoman.admin.v1.AdminService/GetStatus"
USER, ADMIN, FORMER = generate_key(), generate_key(), generate_key()
EXPIRY = datetime(2027, 1, 31, tzinfo=UTC)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "keys.toml"
    entries = ((USER, "user", ""), (ADMIN, "operator", "admin = true"), (FORMER, "former", "expires = 2027-01-31"))
    file.write_text("\n".join(f'[[keys]]\nname = "{n}"\nsha256 = "{digest_of(k)}"\n{more}' for k, n, more in entries))
    return file


@pytest.fixture
def guard(file: Path) -> Authenticator:
    return Authenticator(watch_keys(file, period_s=1.0), clock=lambda: EXPIRY)


def bearing(key: str) -> list[tuple[str, str | bytes]]:
    return [("user-agent", "test"), ("authorization", f"Bearer {key}")]


class TestKeys:
    @pytest.mark.parametrize("scheme", ["bearer", "BEARER", "Bearer "])
    def test_scheme_is_read_as_http_reads_it(self, guard, scheme):
        assert guard.authenticate(TRANSLATE, [("authorization", f"{scheme} {USER}")])

    @pytest.mark.parametrize("method", [TRANSLATE, STATUS, "grpc.reflection.v1.ServerReflection/X", "nobody/Nothing"])
    @pytest.mark.parametrize(
        ("metadata", "reason"),
        [
            ([], "an API key is needed"),
            (bearing("wrong"), "does not know"),
            (bearing(USER[:-1]), "does not know"),
            (bearing(FORMER), "the API key of former has expired"),
            ([("authorization", USER)], "`Bearer KEY` only"),
            ([("authorization", f"Basic {USER}")], "`Bearer KEY` only"),
            ([*bearing(USER), *bearing(USER)], "not several"),
            ([("authorization", b"Bearer")], "not several"),
        ],
    )
    def test_other_callers_are_refused_everywhere_but_at_health(self, guard, method, metadata, reason):
        with pytest.raises(Unauthenticated, match=reason) as error:
            guard.authenticate(method, metadata)

        assert USER[9:] not in str(error.value)
        assert guard.authenticate("grpc.health.v1.Health/Check", metadata) is None

    def test_administration_needs_a_key_with_admin_rights(self, guard):
        with pytest.raises(PermissionDenied, match="the API key of user has no admin rights"):
            guard.authenticate(STATUS, bearing(USER))

        assert guard.authenticate(STATUS, bearing(ADMIN)).admin
        assert guard.authenticate(TRANSLATE, bearing(ADMIN)).admin

    @pytest.mark.parametrize("method", ["grpc.health.v1.HealthX/Check", "x/grpc.health.v1.Health/Check"])
    def test_nothing_that_looks_like_health_is_open(self, guard, method):
        with pytest.raises(Unauthenticated):
            guard.authenticate(method, [])


class TestPeer:
    @pytest.mark.parametrize(
        ("peer", "name"),
        [
            ("ipv4:10.0.0.7:41234", "10.0.0.7"),
            ("ipv6:%5B::1%5D:41234", "::1"),
            ("ipv6:[2001:db8:1:2:3:4:5:6]:80", "2001:db8:1:2::/64"),
            ("ipv6:%5B::ffff:10.0.0.7%5D:80", "10.0.0.7"),
            ("ipv6:%5Bfe80::1%25eth0%5D:80", "fe80::/64"),
            ("unix:/run/dragoman.sock", "unix"),
            ("", ""),
            ("ipv4:nonsense:1", "ipv4"),
            ("\x1b" * 200, "\\x1b" * 125 + "..."),
        ],
    )
    def test_name_is_the_address_without_its_port(self, peer, name):
        client = Authenticator().caller_at(peer, [])

        assert (client.name, client.source) == (name, "peer")


class TestProxy:
    SETTINGS = SecurityConfig(identity_header="x-client", trusted_proxies="10.0.0.0/8, ::1")

    @pytest.mark.parametrize("peer", ["ipv4:10.1.2.3:4", "ipv6:%5B::1%5D:4", "ipv6:%5B::ffff:10.1.2.3%5D:4"])
    def test_trusted_proxy_names_its_client(self, peer):
        client = Authenticator(proxies=trusted_proxies(self.SETTINGS)).caller_at(peer, [("x-client", " shop ")])

        assert (client.name, client.source) == ("shop", "proxy")

    @pytest.mark.parametrize(
        ("peer", "metadata"),
        [
            ("ipv4:11.1.2.3:4", [("x-client", "shop")]),  # not one of ours
            ("unix:/x", [("x-client", "shop")]),
            ("ipv4:10.1.2.3:4", []),
            ("ipv4:10.1.2.3:4", [("x-client", b"shop")]),
            ("ipv4:10.1.2.3:4", [("x-client", "client's own"), ("x-client", "shop")]),
        ],
    )
    def test_any_other_word_is_ignored(self, peer, metadata):
        assert Authenticator(proxies=trusted_proxies(self.SETTINGS)).caller_at(peer, metadata).source == "peer"

    def test_name_is_bounded_and_cannot_command_a_terminal(self):
        proxies = trusted_proxies(self.SETTINGS)

        assert Authenticator(proxies=proxies).caller_at("ipv4:10.0.0.1:4", [("x-client", "\x1b[2J")]).name == r"\x1b[2J"
        assert len(Authenticator(proxies=proxies).caller_at("ipv4:10.0.0.1:4", [("x-client", "x" * 9_000)]).name) == 128

    @pytest.mark.parametrize(
        ("settings", "problem"),
        [
            ({"identity_header": "x-client"}, "identity_header needs security.trusted_proxies"),
            ({"identity_header": "x-client", "trusted_proxies": "10.0.0.1,"}, "trusted_proxies: ''"),
            ({"identity_header": "x-client", "trusted_proxies": "10.0.0.1/8"}, "10.0.0.1/8 has host bits"),
            ({"identity_header": "X-Client", "trusted_proxies": "::1"}, "identity_header is 'X-Client'"),
            ({"identity_header": "authorization", "trusted_proxies": "::1"}, "identity_header is 'authorization'"),
        ],
    )
    def test_settings_that_cannot_be_meant_are_refused(self, settings, problem):
        with pytest.raises(ConfigError, match=r"^security") as error:
            trusted_proxies(SecurityConfig(**settings))

        assert problem in str(error.value)
