"""A GPU that has too little memory, or is gone, behind a real server: the statuses, and what the next caller gets."""

import grpc

from model.tokenizer import Tokenizer
from service.engine.device_errors import DEVICE_LOST_STATUS
from tests.fakes.calls import calling, code_of, eventually
from tests.fakes.server_process import start

GOOD, BAD = "one two three", "one two three four five six seven eight"


def num_tokens(bundle) -> str:
    return str(len(Tokenizer.load(bundle / "shared.spm").encode(BAD)))


async def test_too_little_device_memory_is_resource_exhausted_and_the_next_text_is_translated(echo_bundle, tmp_path):
    variables = {"ECHO_DEVICE_FULL": num_tokens(echo_bundle)}
    server = start(echo_bundle, tmp_path, **variables)
    try:
        async with calling(server.address) as calls:
            code = await code_of(calls.translate(BAD))
            texts = await calls.texts(GOOD)
        restarts = server.metric("dragoman_engine_restarts_total")
    finally:
        server.terminate()
        server.wait()

    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert texts == [GOOD]
    assert restarts == 0


async def test_a_lost_device_ends_the_engine_with_its_status_and_another_takes_its_place(echo_bundle, tmp_path):
    variables = {"ECHO_DEVICE_LOST": num_tokens(echo_bundle), "ECHO_LOAD_S": "0"}
    server = start(echo_bundle, tmp_path, **variables)
    try:
        async with calling(server.address) as calls:
            code = await code_of(calls.translate(BAD))
            await eventually(lambda: server.metric("dragoman_engine_restarts_total") == 1)
            texts = await calls.texts(GOOD)
    finally:
        server.terminate()
        server.wait()

    assert code is grpc.StatusCode.UNAVAILABLE
    assert texts == [GOOD]
    assert f"exit status {DEVICE_LOST_STATUS}" in server.log_text()
    assert "CUDA failure 719" in server.log_text()
