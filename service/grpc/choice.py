"""Which model a call's texts go to, and how it is to search: one answer for Translate and TranslateStream."""

from protos import translation_pb2 as pb
from service.engine.job import SearchParams
from service.grpc.call import Call
from service.grpc.replies import to_options
from service.registry.host import ModelHost
from service.registry.registry import Registry
from service.translation.search_options import search_params, smaller_beam

Asked = pb.TranslateRequest | pb.StreamSettings


def choose(
    asked: Asked, call: Call, registry: Registry, *, brownout_seconds: float | None
) -> tuple[ModelHost, SearchParams]:
    """The model that serves this now, noted in the call, and how it is to search: smaller where load and caller say so.

    Raises:
        NotFound: no model fits that the caller may use.
        InvalidInput: an option is out of range.
    """
    model, options = find_model(asked, call, registry), to_options(asked.options)
    params = search_params(model.info, options)
    if options.allow_smaller_beam:
        params = smaller_beam(params, waiting_s=model.dispatcher.queued_work_s, threshold_s=brownout_seconds)
    return model, params


def find_model(asked: Asked, call: Call, registry: Registry) -> ModelHost:
    """The model alone, likewise."""
    model = registry.find(
        model=asked.model if asked.HasField("model") else None,
        source_language=asked.source_language,
        target_language=asked.target_language,
        may_use=call.may_use,
    )
    call.use_model(model.info.name)
    return model
