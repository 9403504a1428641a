"""TLS, API keys and logs of the real server: who gets in, who does not, and what is said about it."""

import asyncio
import json
import os
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2

from protos import translation_pb2 as pb
from service.api.api_keys import generate_key
from service.client import AsyncClient
from service.client.channel import ClientConfig, TlsOptions
from service.client.retry import RetryPolicy
from service.commands.keys_run import NewKey, append_entry, entry_of
from service.errors import Unavailable
from tests.fakes.calls import LIST_MODELS, TRANSLATE, Calls, calling, details_of, failure, trailer
from tests.fakes.certificates import Authority, Pair
from tests.fakes.server_fixtures import StartServer
from tests.fakes.server_process import ROOT, ServerProcess, run_to_end

Code = grpc.StatusCode
GET_STATUS = "/dragoman.admin.v1.AdminService/GetStatus"
REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
QUICK = "0.05"  # seconds until changed files are noticed


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ours"), "ours")


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("others"), "others")


def trusting(authority: Authority, pair: Pair | None = None) -> grpc.ChannelCredentials:
    key, chain = (pair.key.read_bytes(), pair.certificate.read_bytes()) if pair else (None, None)
    return grpc.ssl_channel_credentials(authority.pem, key, chain)


def tls_settings(pair: Pair, client_ca: Path | None = None) -> dict[str, str]:
    settings = {
        "DRAGOMAN_SECURITY__TLS_CERTIFICATE": str(pair.certificate),
        "DRAGOMAN_SECURITY__TLS_KEY": str(pair.key),
        "DRAGOMAN_SECURITY__RELOAD_S": QUICK,
    }
    return settings | ({"DRAGOMAN_SECURITY__TLS_CLIENT_CA": str(client_ca)} if client_ca else {})


async def succeeds(server: ServerProcess, credentials: grpc.ChannelCredentials | None, **options: int | str) -> bool:
    async with calling(server.address, credentials, **options) as calls:
        return await calls.texts("a") == ["a"]


async def refusal(server: ServerProcess, credentials: grpc.ChannelCredentials | None, **options: int | str) -> str:
    """The words with which the connection fails."""
    async with calling(server.address, credentials, **options) as calls:
        error = await failure(calls.translate("a"))
    assert error.code() is Code.UNAVAILABLE
    return details_of(error)


async def retried(attempt: Callable[[], Awaitable[bool]]) -> None:
    """Return once it succeeds: when another process notices a change cannot be awaited."""
    async with asyncio.timeout(20):
        while not await attempt():
            pass


class TestTls:
    async def test_handshake_failures_are_told_to_the_caller_and_harm_nobody_else(self, start_server, ours, others):
        server = start_server(**tls_settings(ours.issue("server")))
        lines = len(server.log_text().splitlines())

        assert "Socket closed" in await refusal(server, None)
        assert "CERTIFICATE_VERIFY_FAILED" in await refusal(server, trusting(others))
        assert "Hostname Verification" in await refusal(
            server, trusting(ours), ssl_target_name_override="elsewhere.example"
        )

        assert await succeeds(server, trusting(ours))
        assert len(server.log_text().splitlines()) - lines <= 3  # at most one line each, by gRPC itself

    async def test_expired_certificate_is_refused_by_callers(self, start_server, ours):
        server = start_server(**tls_settings(ours.issue("expired", is_expired=True)))

        assert "CERTIFICATE_VERIFY_FAILED" in await refusal(server, trusting(ours))

    async def test_client_without_a_certificate_of_the_authority_gets_no_connection(self, start_server, ours, others):
        server = start_server(**tls_settings(ours.issue("server"), ours.certificate))

        assert await refusal(server, trusting(ours))
        assert await refusal(server, trusting(ours, others.issue("stranger")))
        assert await refusal(server, trusting(ours, ours.issue("former", is_expired=True)))
        assert await succeeds(server, trusting(ours, ours.issue("client")))

    def test_tls_before_1_2_is_not_spoken(self, start_server, ours):
        server = start_server(**tls_settings(ours.issue("server")))

        assert spoken(server, ours, ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
        assert spoken(server, ours, ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
        with pytest.raises(ssl.SSLError), pytest.warns(DeprecationWarning, match="TLSv1_1"):
            spoken(server, ours, ssl.TLSVersion.TLSv1_1)

    async def test_the_client_says_why_it_has_no_connection(self, start_server, ours, others):
        server = start_server(**tls_settings(ours.issue("server")))
        tls = TlsOptions(root_certificates=others.certificate)
        config = ClientConfig(tls=tls, wait_for_ready=False, retry=RetryPolicy(max_attempts=1))

        async with AsyncClient(server.address, config) as client:
            with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
                await client.translate(["a"])

    async def test_the_client_has_every_file_and_the_name_of_tls(self, start_server, ours):
        server = start_server(**tls_settings(ours.issue("named", "dragoman.example"), ours.certificate))
        pair = ours.issue("client")
        tls = TlsOptions(
            root_certificates=ours.certificate,
            private_key=pair.key,
            certificate_chain=pair.certificate,
            server_name="dragoman.example",
        )

        async with AsyncClient(server.address, ClientConfig(tls=tls, timeout_s=20.0)) as client:
            assert (await client.translate(["a"])).translations[0].text == "a"

    def test_health_command_looks_through_tls(self, start_server, ours, others):
        server = start_server(**tls_settings(ours.issue("server")))
        command = [sys.executable, "-m", "service", "health", "--server", server.address]

        codes = []
        for authority in (ours.certificate, others.certificate, ""):
            variables = os.environ | {"PYTHONPATH": str(ROOT), "DRAGOMAN_TLS_CA": str(authority)}
            codes.append(subprocess.run(command, env=variables, capture_output=True, check=False).returncode)

        assert codes == [0, 1, 1]

    async def test_new_certificates_are_taken_without_a_restart_and_open_connections_stay(
        self, start_server, ours, others
    ):
        pair = ours.issue("rotated")
        server = start_server(**tls_settings(pair))
        async with calling(server.address, trusting(ours)) as before:
            assert await before.texts("a") == ["a"]

            pair.replace(others.issue("next"))

            await retried(lambda: answers(server, trusting(others)))
            assert "CERTIFICATE_VERIFY_FAILED" in await refusal(server, trusting(ours))
            assert await before.texts("b") == ["b"]
        assert events(server, "tls_reloaded")[-1]["certificate"] == str(pair.certificate)

    async def test_broken_new_certificate_is_logged_once_and_the_old_one_stays(self, start_server, ours, others):
        pair, key = ours.issue("broken"), others.issue("key").key
        server = start_server(**tls_settings(pair))

        pair.key.write_bytes(key.read_bytes())

        await retried(lambda: noticed(server, trusting(ours), "tls_not_reloaded"))
        assert await succeeds(server, trusting(ours))
        (event,) = events(server, "tls_not_reloaded")
        assert event["reason"] == f"security.tls_key: {pair.key} is not the key of {pair.certificate}"

    async def test_new_authority_of_clients_is_taken_without_a_restart(self, start_server, ours, others, tmp_path):
        clients = tmp_path / "clients.pem"
        clients.write_bytes(ours.pem)
        server = start_server(**tls_settings(ours.issue("server"), clients))
        assert await succeeds(server, trusting(ours, ours.issue("client")))

        clients.write_bytes(others.pem)

        await retried(lambda: answers(server, trusting(ours, others.issue("client"))))
        assert await refusal(server, trusting(ours, ours.issue("client")))

    @pytest.mark.parametrize(
        ("setting", "content", "problem"),
        [
            ("TLS_CERTIFICATE", None, "cannot be read: No such file or directory"),
            ("TLS_CERTIFICATE", "nonsense", "holds no certificate in PEM"),
            ("TLS_KEY", "nonsense", "holds no private key in PEM without a password"),
            ("TLS_CLIENT_CA", "nonsense", "holds no certificate in PEM"),
            ("API_KEYS", None, "cannot be read: No such file or directory"),
            ("API_KEYS", "[[keys]]", "keys[0].name: Field required"),
        ],
    )
    def test_file_that_cannot_be_used_ends_the_start_with_its_name(
        self, echo_bundle, ours, tmp_path, setting, content, problem
    ):
        file = tmp_path / "file"
        if content is not None:
            file.write_text(content)
        settings = tls_settings(ours.issue("server")) | {f"DRAGOMAN_SECURITY__{setting}": str(file)}

        status, errors = run_to_end(echo_bundle, **settings)

        assert status == 2
        (line,) = [line for line in errors.splitlines() if line.startswith("dragoman:")]
        assert line.startswith(f"dragoman: security.{setting.lower()}: {file}")
        assert line.endswith(problem)


def spoken(server: ServerProcess, authority: Authority, version: ssl.TLSVersion) -> str | None:
    """The version of TLS that a client of this one alone gets."""
    context = ssl.create_default_context(cafile=authority.certificate)
    context.set_ciphers("ALL:@SECLEVEL=0")  # OpenSSL's own refusal of the old ones would hide the server's
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", server.grpc_port), timeout=20) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        return connection.version()


async def answers(server: ServerProcess, credentials: grpc.ChannelCredentials) -> bool:
    async with calling(server.address, credentials) as calls:
        try:
            return await calls.texts("a") == ["a"]
        except grpc.aio.AioRpcError:
            return False


async def noticed(server: ServerProcess, credentials: grpc.ChannelCredentials, event: str) -> bool:
    await answers(server, credentials)
    return bool(events(server, event))


def events(server: ServerProcess, name: str) -> list[dict[str, str]]:
    """The lines of the log about one kind of event; gRPC's own lines are no JSON."""
    lines = [line for line in server.log_text().splitlines() if line.startswith("{")]
    return [event for event in map(json.loads, lines) if event["event"] == name]


class Keys:
    """A file of keys: one for everything, one for another model, one for administration."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.shop = self.add(NewKey(name="shop"))
        self.elsewhere = self.add(NewKey(name="elsewhere", models=("other",)))
        self.admin = self.add(NewKey(name="operator", admin=True))

    def add(self, new: NewKey) -> str:
        key = generate_key()
        append_entry(self.file, entry_of(new, key))
        return key


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys") / "keys.toml")


@pytest.fixture
def guarded(start_server: StartServer, keys: Keys) -> ServerProcess:
    return start_server(DRAGOMAN_SECURITY__API_KEYS=str(keys.file), DRAGOMAN_SECURITY__RELOAD_S=QUICK)


def with_key(key: str, request_id: str = "call-1") -> tuple[tuple[str, str], ...]:
    return ("authorization", f"Bearer {key}"), ("x-request-id", request_id)


async def code_with(calls: Calls, method: str, key: str) -> Code:
    """The status of a call without a message that anybody would understand."""
    try:
        await calls.method(method)(b"\x0a\x01a", metadata=with_key(key), timeout=20)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return Code.OK


class TestKeys:
    async def test_a_good_key_opens_and_every_other_caller_is_refused(self, guarded, keys):
        async with calling(guarded.address) as calls:
            good = await calls.translate("a", metadata=with_key(keys.shop))
            missing = await failure(calls.translate("a"))
            wrong = await failure(calls.translate("a", metadata=with_key(generate_key())))
            other_scheme = await failure(calls.translate("a", metadata=(("authorization", f"Basic {keys.shop}"),)))
            for_another_model = await failure(calls.translate("a", metadata=with_key(keys.elsewhere)))

        assert good.translations[0].hypotheses[0].text == "a"
        assert [error.code() for error in (missing, wrong, other_scheme)] == [Code.UNAUTHENTICATED] * 3
        assert details_of(missing) == "an API key is needed: send it as metadata `authorization: Bearer KEY`"
        assert details_of(wrong) == "the API key is not known here"
        assert for_another_model.code() is Code.NOT_FOUND
        assert details_of(for_another_model) == "there is no model; loaded: none"  # no name that is not the caller's
        assert guarded.metric("dragoman_requests_total", code="UNAUTHENTICATED") == 3.0
        assert guarded.metric("dragoman_requests_total", code="NOT_FOUND") == 1.0

    async def test_models_are_listed_for_those_who_may_use_them(self, guarded, keys):
        async with calling(guarded.address) as calls:
            method = calls.method(LIST_MODELS)
            listed = [
                pb.ListModelsResponse.FromString(await method(b"", metadata=with_key(key), timeout=20))
                for key in (keys.shop, keys.elsewhere)
            ]

        assert [[model.name for model in answer.models] for answer in listed] == [["echo"], []]

    async def test_health_needs_no_key_and_everything_else_does(self, guarded, keys):
        async with calling(guarded.address) as calls:
            health = await calls.health.Check(health_pb2.HealthCheckRequest())
            codes = [await code_with(calls, method, "wrong") for method in (LIST_MODELS, "/nobody.Service/Nothing")]
            reflection = calls.stream(REFLECTION)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await reflection.read()

        assert health.status == health_pb2.HealthCheckResponse.SERVING
        assert [*codes, refused.value.code()] == [Code.UNAUTHENTICATED] * 3

    async def test_admin_methods_are_not_on_the_port_of_translations(self, guarded, keys):
        """And whoever has no admin key does not even learn that."""
        async with calling(guarded.address) as calls:
            assert await code_with(calls, GET_STATUS, keys.shop) is Code.PERMISSION_DENIED
            assert await code_with(calls, GET_STATUS, keys.admin) is Code.UNIMPLEMENTED

    async def test_admin_methods_are_not_on_the_port_of_translations_without_keys_either(self, server):
        async with calling(server.address) as calls:
            assert await code_with(calls, GET_STATUS, "any") is Code.UNIMPLEMENTED

    async def test_changed_keys_are_taken_without_a_restart_and_a_broken_file_changes_nothing(
        self, start_server, tmp_path
    ):
        keys = Keys(tmp_path / "changing.toml")
        server = start_server(DRAGOMAN_SECURITY__API_KEYS=str(keys.file), DRAGOMAN_SECURITY__RELOAD_S=QUICK)
        async with calling(server.address) as calls:
            new = keys.add(NewKey(name="new"))
            await retried(lambda: is_good(calls, new))

            keys.file.write_text("[[keys]")
            await retried(lambda: noticed_by_call(server, calls, "api_keys_not_reloaded"))
            assert await is_good(calls, new)

            keys.file.unlink()
            successor = Keys(keys.file)
            await retried(lambda: is_good(calls, successor.shop))
            assert not await is_good(calls, new)

        (event,) = events(server, "api_keys_not_reloaded")
        assert event["reason"].startswith(f"security.api_keys: {keys.file} is not valid TOML")

    async def test_the_client_sends_its_key_with_every_call(self, guarded, keys):
        async with AsyncClient(guarded.address, ClientConfig(api_key=keys.shop, timeout_s=20.0)) as client:
            await client.wait_until_ready(20.0)
            assert [model.name for model in await client.models()] == ["echo"]
            assert (await client.translate(["a"])).translations[0].text == "a"

    async def test_refused_callers_fill_the_log_only_so_far(self, guarded):
        async with calling(guarded.address) as calls:
            for _ in range(100):
                await failure(calls.translate("a"))

        refusals = events(guarded, "call_refused")
        assert len(refusals) == 10
        assert {(event["code"], event["client"]) for event in refusals} == {("UNAUTHENTICATED", "127.0.0.1")}


async def is_good(calls: Calls, key: str) -> bool:
    return await code_with(calls, TRANSLATE, key) is Code.OK


async def noticed_by_call(server: ServerProcess, calls: Calls, event: str) -> bool:
    await code_with(calls, TRANSLATE, "any")
    return bool(events(server, event))


class TestTraces:
    async def test_every_refusal_carries_the_request_s_id(self, guarded, keys):
        sent = with_key(keys.shop, "mine-7")
        async with calling(guarded.address) as calls:
            method, nobody = calls.method(TRANSLATE), calls.method("/nobody.Service/Nothing")
            refused = {
                "no key": await failure(method(b"", metadata=sent[1:])),
                "wrong model": await failure(method(b"\x0a\x01a", metadata=with_key(keys.elsewhere, "mine-7"))),
                "malformed": await failure(method(b"\xff", metadata=sent)),
                "no texts": await failure(method(b"", metadata=sent)),
                "unknown method": await failure(nobody(b"", metadata=sent)),
            }
            unnamed = await failure(method(b""))

        assert {case: trailer(error, "x-request-id") for case, error in refused.items()} == dict.fromkeys(
            refused, "mine-7"
        )
        assert re.fullmatch("[0-9a-f]{32}", str(trailer(unnamed, "x-request-id")))
        assert events(guarded, "call_refused")[0]["request_id"] == "mine-7"

    @pytest.mark.parametrize("log_format", ["json", "console"])
    async def test_neither_text_nor_key_enters_the_log(self, start_server, keys, log_format):
        """A session in which all kinds of things go well and go wrong."""
        secret = "Geheimnis"
        server = start_server(
            DRAGOMAN_SECURITY__API_KEYS=str(keys.file),
            DRAGOMAN_TELEMETRY__LOG_LEVEL="debug",
            DRAGOMAN_TELEMETRY__LOG_FORMAT=log_format,
            DRAGOMAN_LIMITS__MAX_CHARACTERS="100",
            DRAGOMAN_TELEMETRY__SLOW_REQUEST_S="0.001",
            ECHO_NAN_LENGTH=str(len(secret) + 5),
        )
        wrong = generate_key()
        async with calling(server.address) as calls:
            await misbehave(calls, secret, keys, wrong)
            psutil.Process(server.engine_pids()[0]).kill()
            await asyncio.gather(
                *(calls.translate(secret, metadata=with_key(keys.shop)) for _ in range(10)), return_exceptions=True
            )
        server.terminate()
        assert server.wait() == 0

        log = server.log_text()
        assert "call_refused" in log
        assert [word for word in (secret, wrong, wrong[9:], keys.shop[9:], keys.admin[9:]) if word in log] == []
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", log)


async def misbehave(calls: Calls, secret: str, keys: Keys, wrong: str) -> None:
    """Send the secret in every way that fails, and in some that do not."""
    good = with_key(keys.shop)
    raw = calls.method(TRANSLATE)
    attempts: list[Awaitable[object]] = [
        calls.translate(secret, metadata=good),
        calls.translate(f"{secret}!!!!", metadata=good),  # the runner makes NaN of this one
        calls.translate(secret * 20, metadata=good),
        calls.translate(secret),
        calls.translate(secret, metadata=with_key(wrong)),
        calls.translate(secret, metadata=with_key(keys.elsewhere)),
        calls.translate(secret, metadata=(("authorization", wrong),)),
        calls.translate(secret, metadata=(*good, *good)),
        calls.translate(secret, metadata=good, model=f"\x1b[31m{secret}\u202e"),
        calls.translate(secret, metadata=good, source_language=secret),
        calls.translate(secret, metadata=good, timeout=0.0001),
        calls.translate(secret, metadata=(*good[:1], ("x-request-id", f"{secret} {wrong}"))),
        calls.translate(secret, metadata=(*good, ("user", secret))),
        raw(secret.encode(), metadata=good, timeout=20),
        raw(b"\x0a\x0c\xc3\x28" + secret.encode() + b"\x80", metadata=good, timeout=20),
        calls.method(f"/nobody.Service/{secret}")(secret.encode(), metadata=good, timeout=20),
        calls.health.Check(health_pb2.HealthCheckRequest(service=f"\x1b{secret}")),
    ]
    await asyncio.gather(*attempts, return_exceptions=True)


async def test_http_port_can_be_switched_off(start_server):
    server = start_server(DRAGOMAN_LISTEN__HTTP="false")

    async with calling(server.address) as calls:
        assert await calls.texts("a") == ["a"]
    assert server.listening_ports() == {server.grpc_port}
    assert "http_port" not in server.log_text()
