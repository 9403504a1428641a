"""A blocking client and its process: exit without `close`, Ctrl-C, garbage, threads and forks."""

import asyncio
import re
import subprocess
import sys

import pytest

from tests.fakes.scripted_server import ScriptedServer, running

__all__ = ["running"]

BEGIN = """
import gc, os, signal, sys, threading, time
from service.client import Client
address = sys.argv[1]
def endless():
    while True:
        yield "a"
client = Client(address)
"""
NEVER_CLOSED = """
print(client.translate(["a"]).translations[0].text)
stream, several = client.translate_stream(endless()), client.translate_all(endless())
print(next(stream)[1].text, next(several).text)
"""
GARBAGE = """
gc.set_threshold(2, 1, 1000)  # garbage is found anywhere, also in a thread that the loop waits for
class Cycle: pass
for _ in range(20):
    cycle = Cycle()
    cycle.me, cycle.stream = cycle, client.translate_stream(endless())
    next(cycle.stream)
del cycle
gc.collect()
client.close()
print("A")
"""
INTERRUPTED = """
has_first = threading.Event()
def one():
    yield "a"
    has_first.wait()
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    time.sleep(60)
stream = client.translate_stream(one())
print(next(stream)[1].text)
try:
    has_first.set()
    next(stream)
except KeyboardInterrupt:
    print(client.translate(["after"]).translations[0].text)
"""
CLOSED_IN_THE_MIDDLE = """
from service.errors import Unavailable
ends = []
def call():
    try:
        while True:
            client.translate(["a"])
    except Unavailable as error:
        ends.append(str(error))
threads = [threading.Thread(target=call) for _ in range(8)]
for thread in threads: thread.start()
client.translate(["a"])
client.close()
for thread in threads: thread.join()
print(*{end for end in ends}, len(ends))
"""
FORKED = """
client.translate(["a"])
child = os.fork()
if child == 0:
    for use in (lambda: client.translate(["b"]), lambda: Client(address)):
        try:
            use()
        except RuntimeError as error:
            assert "forked" in str(error)
        else:
            os._exit(1)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
print(client.translate(["parent"]).translations[0].text)
"""
FORKED_AFTER_ALL_WERE_CLOSED = """
client.translate(["a"])
client.close()
del client
gc.collect()
child = os.fork()
if child == 0:
    with Client(address) as own:
        print(own.translate(["child"]).translations[0].text, flush=True)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.parametrize(
    ("program", "printed"),
    [
        (NEVER_CLOSED, "A\nA A\n"),
        (GARBAGE, "A\n"),
        (INTERRUPTED, "A\nAFTER\n"),
        (CLOSED_IN_THE_MIDDLE, "the client was closed before the answer came 8\n"),
        (FORKED, "PARENT\n"),
        (FORKED_AFTER_ALL_WERE_CLOSED, "CHILD\n"),
    ],
    ids=["never-closed", "garbage", "interrupted", "closed", "forked", "forked-after-close"],
)
async def test_process_does_what_it_should_and_ends_without_a_warning(running: ScriptedServer, program, printed):
    command = [sys.executable, "-X", "dev", "-c", BEGIN + program, running.address]

    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=120.0, check=False, env=None
    )

    # Of any fork, by gRPC; of any step of the loop over 0.1 s, by asyncio, as happens on a busy machine.
    complaints = [
        line for line in done.stderr.splitlines() if not re.search("fork_posix.cc|^Executing <.* took ", line)
    ]
    assert (done.returncode, done.stdout, complaints) == (0, printed, [])
