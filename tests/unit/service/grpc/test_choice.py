"""Which model a call's texts go to, and how it searches, for both methods alike."""

from types import SimpleNamespace

import pytest

from protos import translation_pb2 as pb
from service.errors import InvalidInput, NotFound
from service.grpc.call import Call
from service.grpc.choice import choose
from tests.fakes.model_info import model_info
from tests.fakes.repository_in_memory import registry_of

BUSY = SimpleNamespace(queued_work_s=100.0)
REGISTRY = registry_of(model_info("first"), model_info("second"), dispatcher=BUSY)
KINDS = pytest.mark.parametrize("kind", [pb.TranslateRequest, pb.StreamSettings])


def new_call(models: frozenset[str] | None = None) -> Call:
    return Call(method="m", request_id="r", started=0.0, deadline=9.0, is_limit_ours=False, limit_s=9.0, models=models)


@KINDS
def test_model_that_answers_is_noted_in_the_call(kind):
    call = new_call()

    model, params = choose(kind(model="second"), call, REGISTRY, brownout_seconds=None)

    assert (model.info.name, call.model, params.beam_size) == ("second", "second", 4)


@KINDS
def test_model_that_the_caller_may_not_use_is_as_if_it_were_not_there(kind):
    call = new_call(frozenset({"second"}))

    assert choose(kind(), call, REGISTRY, brownout_seconds=None)[0].info.name == "second"
    with pytest.raises(NotFound):
        choose(kind(model="first"), call, REGISTRY, brownout_seconds=None)


@KINDS
def test_option_out_of_range_is_refused_after_the_model_was_noted(kind):
    call = new_call()

    with pytest.raises(InvalidInput, match="beam_size is 99"):
        choose(kind(options=pb.TranslateOptions(beam_size=99)), call, REGISTRY, brownout_seconds=None)

    assert call.model == "first"


@KINDS
@pytest.mark.parametrize(
    ("threshold_s", "is_allowed", "beam"), [(1.0, True, 1), (1.0, False, 4), (None, True, 4), (None, False, 4)]
)
def test_beam_changes_only_where_server_and_caller_say_so(kind, threshold_s, is_allowed, beam):
    asked = kind(options=pb.TranslateOptions(allow_smaller_beam=is_allowed))

    _, params = choose(asked, new_call(), REGISTRY, brownout_seconds=threshold_s)

    assert params.beam_size == beam
