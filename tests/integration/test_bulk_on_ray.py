"""`dragoman bulk --engine ray` with a worker killed in the middle: nothing lost or doubled, failures and waits told."""

import pytest

from tests.fakes.bulk_runs import WITHIN_S, await_parts, bulk, parts_folder, ray_workers
from tests.fakes.own_text import own_sentences

pytest.importorskip("ray", reason="needs the extra ray")

LINES = 400
TOO_LONG = "x" * 20_000  # characters; the server's limit is 10,000
SLOW_S = "0.004"  # seconds a step of the echo runner, so that there is a middle
# The workers' calls meet there; the client has sent one for the last time long before the other one is answered.
ROOM_FOR_ONE = {"DRAGOMAN_LIMITS__MAX_CONCURRENT_REQUESTS": "1", "DRAGOMAN_LIMITS__RETRY_AFTER_S": "0.001"}


@pytest.mark.slow  # Ray alone takes half of it to start and stop
@pytest.mark.timeout(240)
def test_a_killed_worker_costs_nothing(start_server, tmp_path):
    server = start_server(ECHO_STEP_S=SLOW_S, **ROOM_FOR_ONE)
    source, output = tmp_path / "in.txt", tmp_path / "out.txt"
    lines = list(own_sentences(LINES))
    lines[7] = TOO_LONG
    source.write_text("".join(f"{line}\n" for line in lines))

    with bulk(source, output, server.address, "--engine", "ray", "--workers", "2", "--part-size", "10") as process:
        await_parts(output, 3, process)
        ray_workers(process)[0].kill()
        _, said = process.communicate(timeout=WITHIN_S)

    assert process.returncode == 1, said
    assert "record 8: " in said
    assert "waiting, until there is room: " in said
    lines[7] = ""
    assert output.read_text() == "".join(f"{line}\n" for line in lines)
    assert not parts_folder(output).exists()
