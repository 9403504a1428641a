"""I: what surrounds the server: clients with habits of their own, and the machine or container that it runs in."""

import asyncio
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2

from model.bundle import default_bundle_dir
from protos import translation_pb2 as pb
from service.api.grpc.server import MIN_PING_INTERVAL_S
from service.client import AsyncClient
from service.client.channel import ClientConfig
from tests.fakes.calls import calling, code_of, eventually
from tests.fakes.certificates import Authority
from tests.fakes.http2_peer import (
    ENHANCE_YOUR_CALM,
    Peer,
    call_headers,
    data_frame,
    grpc_message,
    headers_frame,
    ping_frame,
)
from tests.fakes.http_requests import post
from tests.fakes.load import probing
from tests.fakes.own_text import own_sentences
from tests.fakes.secured_server import Keys
from tests.fakes.server_process import start
from tests.reliability.conftest import DEFAULTS, Seen

pytestmark = pytest.mark.reliability

CHECK = health_pb2.HealthCheckRequest()
SERVING = health_pb2.HealthCheckResponse.SERVING
OK = grpc.StatusCode.OK


# Has mounts of its own, in which everything but the directory $1 is read-only; $1/full has no room.
READ_ONLY = """
mount --make-rprivate /
for place in / /tmp /var/tmp; do mount --bind $place $place && mount -o remount,bind,ro $place; done
mount --bind "$1" "$1" && mount -o remount,bind,rw "$1"
mkdir "$1/full" && mount -t tmpfs -o size=16k tmpfs "$1/full"
head -c 1M /dev/zero > "$1/full/file" 2> /dev/null
shift
exec "$@"
"""
UNSHARE = ("unshare", "--mount", *(() if os.getuid() == 0 else ("--map-root-user",)))


def require(*command: str) -> None:
    """Skip the test where such namespaces cannot be made."""
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip(f"not allowed here: {' '.join(command)}")


@pytest.mark.promise("I1")
@pytest.mark.timeout(180)
@pytest.mark.parametrize(("place", "edges"), [("", "1"), ("full", "1"), ("full", "2"), ("missing", "2")])
async def test_every_call_answers_whatever_the_temporary_directory_is(tmp_path, seen: Seen, place, edges):
    """The included models with two engines each, which share weights all the same; `place` "" is a read-only /tmp."""
    require(*UNSHARE, "sh", "-c", "mount --make-rprivate /")
    options = {
        **DEFAULTS,
        "DRAGOMAN_ENGINE__NUM_ENGINES": "2",
        "DRAGOMAN_LISTEN__EDGES": edges,
        "TMPDIR": place and str(tmp_path / place),
    }
    within = (*UNSHARE, "sh", "-c", READ_ONLY, "sh", str(tmp_path))
    server = await asyncio.to_thread(start, None, tmp_path, within=within, **options)
    try:
        async with calling(server.address) as calls:
            texts = await calls.texts("The cat sleeps.", "Die Katze schläft.")
        page = await asyncio.to_thread(post, server.http_port, "/detect", q="Die Katze schläft im Garten.")
        warnings = [line for line in server.log_text().splitlines() if '"warning"' in line]
        seen(f"TMPDIR={place or '/tmp, read-only'}, {edges} edges: {texts}")

        assert len(texts) == 2
        assert page.json()[0]["language"] == "de"
        assert warnings == []
    finally:
        server.process.kill()
        server.process.wait()


# As clients of Go, Java and C++ do that check the health of each connection before they use it.
CHECKS_HEALTH = {
    "loadBalancingConfig": [{"round_robin": {}}],
    "healthCheckConfig": {"serviceName": "dragoman.v1.TranslationService"},
}


@pytest.mark.promise("I3")
@pytest.mark.timeout(240)
async def test_many_watches_cost_little_and_one_client_cannot_take_the_places_of_others(start_server, seen: Seen):
    server = start_server(DRAGOMAN_LIMITS__MAX_WATCHES="2500")
    process = psutil.Process(server.process.pid)
    block, message = call_headers("/grpc.health.v1.Health/Watch"), grpc_message(b"")
    async with AsyncExitStack() as stack:
        before = process.memory_info().rss
        clients = [await stack.enter_async_context(calling(server.address)) for _ in range(50)]
        watches = [client.health.Watch(CHECK) for client in clients for _ in range(40)]
        async with calling(server.address) as calls, probing(calls) as probe:
            first = await asyncio.gather(*(one.read() for one in watches))
            assert {response.status for response in first} == {SERVING}
        grown = process.memory_info().rss - before
        for _ in range(10):
            greedy = stack.enter_context(Peer(server.grpc_port, source="127.0.0.2"))
            for stream in range(1, 400, 2):
                greedy.send(headers_frame(stream, block) + data_frame(stream, message, is_end=True))
        await eventually(lambda: server.metric("dragoman_rejected_total", reason="streams") > 0)
        config = json.dumps(CHECKS_HEALTH)
        request, codes = pb.TranslateRequest(texts=["one more"]), []
        for _ in range(50):
            async with calling(server.address, service_config=config) as calls:
                codes.append(await code_of(calls.send(request, timeout=20, wait_for_ready=True)))
        in_flight = server.metric("dragoman_requests_in_flight", method="grpc.health.v1.Health/Watch")
        seen(
            f"2,000 Watches: memory {grown / 2**20:+.0f} MiB, {len(probe.waits)} calls beside them OK; {in_flight:.0f} "
            "with those of a greedy client, and 50 more clients that check the health of their connection were served"
        )

        assert probe.errors == []
        assert set(codes) == {OK}
        assert not any(one.done() for one in watches)
        for one in watches:
            one.cancel()


@pytest.mark.promise("I4")
@pytest.mark.timeout(180)
async def test_keepalive_loses_no_call_and_a_ping_every_100_ms_ends_the_connection(start_server, seen: Seen):
    """Five pings, each a little after the interval that is allowed, beside a silent Watch: three would end it at gRPC's
    own 5 minutes.  A client that pings every 20 s for 5 minutes is this one, slower.
    """
    server = start_server()
    every_s = MIN_PING_INTERVAL_S + 0.5
    keepalive: dict[str, Any] = {
        "keepalive_time_ms": round(every_s * 1e3),
        "keepalive_permit_without_calls": 1,
        "http2.max_pings_without_data": 0,
    }
    hasty_pings = 0
    async with calling(server.address, **keepalive) as calls:
        watch = calls.health.Watch(CHECK)
        assert (await watch.read()).status == SERVING
        with Peer(server.grpc_port) as patient, Peer(server.grpc_port) as hasty:
            for _ in range(5):
                assert patient.send(ping_frame())
                for _ in range(round(every_s / 0.1)):
                    hasty_pings += not hasty.is_closed.is_set() and hasty.send(ping_frame())
                    await asyncio.sleep(0.1)
            assert await hasty.farewell() == (ENHANCE_YOUR_CALM, b"too_many_pings")
            assert patient.num_answered == 5
            assert not patient.is_closed.is_set()
        assert not watch.done()
        watch.cancel()
        assert await code_of(calls.translate("after")) is OK
    seen(f"5 pings every {every_s:g} s: none lost; one every 100 ms: ended after {hasty_pings}")


def probe(port: int, count: int) -> None:
    """Connections that speak neither TLS nor HTTP/2, as scanners make them."""
    with ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            connection.sendall(b"nonsense\r\n\r\n")


@pytest.fixture
def secured(tmp_path) -> tuple[dict[str, Any], grpc.ChannelCredentials]:
    """Settings of a server with TLS and keys that nobody has, and what its clients trust."""
    authority = Authority(tmp_path, "ours")
    pair = authority.issue("server")
    settings = {"TLS_CERTIFICATE": str(pair.certificate), "TLS_KEY": str(pair.key)}
    return (
        {f"DRAGOMAN_SECURITY__{name}": value for name, value in settings.items()},
        grpc.ssl_channel_credentials(authority.pem),
    )


@pytest.mark.promise("I6")
@pytest.mark.timeout(180)
async def test_standard_error_that_nobody_reads_stops_nothing(echo_bundle, tmp_path, secured, seen: Seen):
    settings, trust = secured
    pipe = tmp_path / "errors"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)  # else the server would wait here for one that reads
    room = fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4_096)
    within = ("sh", "-c", f'exec "$@" 2> {pipe}', "sh")
    settings |= {"DRAGOMAN_TELEMETRY__LOG_LEVEL": "debug", "GRPC_VERBOSITY": "INFO"}  # gRPC's own lines, too
    server = await asyncio.to_thread(start, echo_bundle, tmp_path, within=within, **settings)
    try:
        async with calling(server.address, trust) as calls:
            await asyncio.to_thread(probe, server.grpc_port, 1_000)
            for pid in (server.process.pid, *server.engine_pids()) * 5:
                os.kill(pid, signal.SIGUSR1)
            assert await calls.texts("some words") == ["some words"]
            os.kill(server.engine_pids()[0], signal.SIGKILL)
            await eventually(lambda: server.metric("dragoman_engine_restarts_total") == 1)
            assert await calls.texts("some words") == ["some words"]
            dropped = server.metric("dragoman_log_dropped_total")
        server.terminate()
        assert await asyncio.to_thread(server.wait) == 0
    finally:
        server.process.kill()
        server.process.wait()
        os.close(reader)
    seen(f"{room} bytes of room: 1,000 probes of a TLS port, 10 SIGUSR1, calls OK; {dropped:.0f} lines dropped")
    assert dropped > 0


@pytest.mark.promise("I6")
@pytest.mark.timeout(180)
async def test_strangers_cause_a_bounded_number_of_lines_each_of_which_is_json(
    start_server, tmp_path, secured, seen: Seen
):
    settings, trust = secured
    keys = Keys(tmp_path / "keys.toml")
    server = start_server(**settings, DRAGOMAN_SECURITY__API_KEYS=str(keys.file))
    at_start = len(server.log_text())
    async with calling(server.address, trust) as calls:
        await asyncio.to_thread(probe, server.grpc_port, 1_000)
        await asyncio.to_thread(probe, server.http_port, 1_000)
        codes = {await code_of(calls.translate("a")) for _ in range(1_000)}
    lines = server.log_text()[at_start:].splitlines()
    seen(f"2,000 probes and 1,000 calls without a key: {len(lines)} lines")

    assert codes == {grpc.StatusCode.UNAUTHENTICATED}
    assert len(lines) <= 20
    assert {json.loads(line)["event"] for line in lines} <= {"call_refused", "library_message"}


MEMORY = Path("/sys/fs/cgroup/memory")  # of version 1


@pytest.fixture
def memory_group() -> Iterator[Path]:
    """A group of processes whose memory can be limited."""
    group = MEMORY / f"dragoman-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip("needs a memory cgroup that can be made")
    yield group
    group.rmdir()


@pytest.mark.promise("I8")
@pytest.mark.timeout(240)
async def test_memory_that_runs_out_costs_an_engine_and_no_text(tmp_path, memory_group, seen: Seen):
    """Something beside the engines takes what is left; the client sends its calls again."""
    joined = ("sh", "-c", f'echo $$ > {memory_group}/cgroup.procs; exec "$@"', "sh")
    bundle = str(default_bundle_dir())
    options = {**DEFAULTS, "DRAGOMAN_ENGINE__BUNDLE": bundle, "DRAGOMAN_ENGINE__NUM_ENGINES": "2"}
    server = await asyncio.to_thread(start, None, tmp_path, within=joined, **options)
    try:
        sentences = own_sentences(64)
        async with AsyncClient(server.address, ClientConfig(timeout_s=120.0)) as client:
            before = await client.translate(sentences)
            translating = asyncio.create_task(client.translate(sentences * 3))
            used = int((memory_group / "memory.usage_in_bytes").read_text())
            cached = re.search(r"^cache (\d+)$", (memory_group / "memory.stat").read_text(), re.MULTILINE)
            (memory_group / "memory.limit_in_bytes").write_text(str(used + (8 << 20)))
            assert cached is not None
            take = f"import time; taken = b'x' * {int(cached[1]) + (40 << 20)}; time.sleep(100)"
            taker = await asyncio.create_subprocess_exec(*joined, sys.executable, "-c", take)
            try:
                await eventually(lambda: server.metric("dragoman_engine_restarts_total") > 0, 60.0)
            finally:
                taker.kill()
                await taker.wait()
            (memory_group / "memory.limit_in_bytes").write_text("-1")
            again = await translating
        killed = server.metric("dragoman_engine_restarts_total")
        seen(f"{used / 2**20:.0f} MiB used, 40 MiB too much taken: {killed:.0f} engines killed, all texts answered")

        assert server.process.poll() is None
        assert [one.text for one in again.translations] == [one.text for one in before.translations] * 3
        assert "killed by SIGKILL" in server.log_text()
    finally:
        server.process.kill()
        server.process.wait()
        await eventually(lambda: not (memory_group / "cgroup.procs").read_text())


OWN_PIDS = (*UNSHARE, "--pid", "--fork", "--mount-proc", "--kill-child")


@pytest.mark.promise("I12")
@pytest.mark.timeout(180)
async def test_process_1_leaves_no_zombies_and_ends_with_its_server(echo_bundle, tmp_path, seen: Seen):
    require(*OWN_PIDS, "true")
    server = await asyncio.to_thread(start, echo_bundle, tmp_path, within=OWN_PIDS)
    try:
        (first,) = psutil.Process(server.process.pid).children()
        orphan = (
            "nsenter",
            "--target",
            str(first.pid),
            "--pid",
            "--mount",
            "sh",
            "-c",
            "for n in 1 2 3; do true & done",
        )
        for _ in range(5):
            leaving = await asyncio.create_subprocess_exec(*orphan)
            await leaving.wait()

        def zombies() -> list[psutil.Process]:
            return [one for one in first.children(recursive=True) if one.status() == psutil.STATUS_ZOMBIE]

        await eventually(lambda: not zombies())
        async with calling(server.address) as calls:
            assert await calls.texts("some words") == ["some words"]
        everybody = first.children(recursive=True)
        first.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(server.wait) == 0
        assert psutil.wait_procs([first, *everybody], timeout=5)[1] == []
        seen(f"{len(everybody)} processes beside it; 15 orphans, no zombie; exit 0")
    finally:
        server.process.kill()
        server.process.wait()
