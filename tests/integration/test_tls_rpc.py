"""TLS of the real server: who gets a connection, who does not, and which files it takes."""

import os
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from service.client.failures import explained
from tests.fakes.calls import calling, details_of, failure
from tests.fakes.certificates import Authority, Pair
from tests.fakes.secured_server import QUICK, Code, events, retried
from tests.fakes.server_process import ROOT, ServerProcess, run_to_end


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
    """The words with which the connection fails, and what helps."""
    async with calling(server.address, credentials, **options) as calls:
        error = await failure(calls.translate("a"))
    assert error.code() is Code.UNAVAILABLE
    return explained(details_of(error))


class TestTls:
    async def test_handshake_failures_are_told_to_the_caller_and_harm_nobody_else(self, start_server, ours, others):
        server = start_server(**tls_settings(ours.issue("server")))
        lines = len(server.log_text().splitlines())

        elsewhere = {"ssl_target_name_override": "elsewhere.example"}
        assert "if the server has TLS, name who signed its certificate (--ca" in await refusal(server, None)
        assert "; name who signed the server's certificate (--ca" in await refusal(server, trusting(others))
        assert "DRAGOMAN_TLS_SERVER_NAME" in await refusal(server, trusting(ours), **elsewhere)

        assert await succeeds(server, trusting(ours))
        assert len(server.log_text().splitlines()) - lines <= 3  # at most one line each, by gRPC itself

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

    def test_what_asks_after_a_container_s_health_gets_through(self, start_server, ours):
        """HEALTHCHECK with what docs/secure.md gives it, and Kubernetes' probes, which have nothing."""
        server = start_server(**tls_settings(ours.issue("named", "dragoman.example"), ours.certificate))
        pair = ours.issue("prober")
        variables = {
            "PYTHONPATH": str(ROOT),
            "DRAGOMAN_TLS_CA": str(ours.certificate),
            "DRAGOMAN_TLS_SERVER_NAME": "dragoman.example",
            "DRAGOMAN_TLS_CLIENT_CERTIFICATE": str(pair.certificate),
            "DRAGOMAN_TLS_CLIENT_KEY": str(pair.key),
        }

        command = [sys.executable, "-m", "service", "health", "--server", server.address]
        done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)

        assert (done.returncode, done.stderr) == (0, "")
        assert server.get("/readyz") == (200, "ready\n")

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

    @pytest.mark.parametrize(
        ("setting", "content", "problem"),
        [
            ("TLS_CERTIFICATE", None, "cannot be read: No such file or directory"),
            ("TLS_KEY", "nonsense", "holds no private key in PEM without a password"),
            ("TLS_CLIENT_CA", "nonsense", "holds no certificate in PEM"),
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
        (line,) = errors.splitlines()  # no engine was started
        assert line.startswith(f"dragoman: security.{setting.lower()}: {file}")
        assert line.endswith(problem)


def spoken(server: ServerProcess, authority: Authority, version: ssl.TLSVersion) -> str | None:
    """The version of TLS that a client of this one alone gets."""
    context = ssl.create_default_context(cafile=authority.certificate)
    context.set_ciphers("ALL:@SECLEVEL=0")  # OpenSSL's own refusal of the old ones would hide the server's
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", server.grpc_port), timeout=120.0) as plain,
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
