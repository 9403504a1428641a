"""Settings of the real server: each one changed makes the difference it promises."""

import grpc

from protos import translation_pb2 as pb
from tests.fakes.calls import calling, details_of, failure

INVALID = grpc.StatusCode.INVALID_ARGUMENT.value[0]


async def test_limits_of_a_request_can_be_set(start_server):
    server = start_server(
        DRAGOMAN_LIMITS__MAX_TEXTS="2",
        DRAGOMAN_LIMITS__MAX_CHARACTERS="5",
        DRAGOMAN_LIMITS__MAX_BEAM_SIZE="1",
        DRAGOMAN_LIMITS__MAX_MESSAGE_BYTES="2048",
    )
    async with calling(server.address) as calls:
        too_many = await failure(calls.translate("a", "b", "c"))
        too_long = await calls.translate("123456")
        too_wide = await failure(calls.translate("a", options=pb.TranslateOptions(beam_size=2)))
        too_large = await failure(calls.translate("x" * 3_000))
        default = await calls.translate("a")

    assert details_of(too_many) == "texts has 3 entries, from 1 to 2 are accepted"
    assert too_long.translations[0].status.code == INVALID
    assert details_of(too_wide) == "options.beam_size is 2, from 1 to 1 is accepted"
    assert too_large.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert default.translations[0].hypotheses[0].text == "a"  # the model's default beam of 2 is cut to the limit
