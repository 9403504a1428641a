"""dragoman.v1.TranslationService: messages to records and back, and the order of the steps between.

Translates; decides nothing itself.  Errors leave as exceptions of `errors.py`; the interceptor gives them a status.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import grpc.aio

from protos import translation_pb2 as pb
from service.config import LimitsConfig
from service.engine.job import FinishReason
from service.grpc import priorities
from service.grpc.call import current_call
from service.grpc.choice import choose
from service.grpc.status import code_number
from service.grpc.wire import deserializer
from service.queue.admission import Admission
from service.queue.usage import UsageLog, usage_of
from service.records import ModelInfo, Timings, TranslatedText, TranslateOptions, Translation
from service.registry.host import ModelHost
from service.registry.registry import Registry
from service.telemetry.metrics import Metrics
from service.translation.translator import Translator

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["TranslationService"].full_name

_FINISH_REASONS = {
    FinishReason.END_OF_SENTENCE: pb.FINISH_REASON_END_OF_SENTENCE,
    FinishReason.LENGTH: pb.FINISH_REASON_LENGTH,
}


class TranslationServicer:
    """Answers the service's methods but TranslateStream, which has a servicer of its own."""

    def __init__(
        self,
        registry: Registry,
        admission: Admission,
        metrics: Metrics,
        limits: LimitsConfig,
        usage: UsageLog,
        translator_of: Callable[[ModelHost], Translator],
    ) -> None:
        self._registry = registry
        self._admission = admission
        self._metrics = metrics
        self._limits = limits
        self._usage = usage
        self._translator_of = translator_of

    async def translate(self, request: pb.TranslateRequest, context: object) -> pb.TranslateResponse:
        """One translation per text; see the contract for the statuses."""
        call = current_call()
        call.progress.texts = len(request.texts)
        client, now = call.client, time.monotonic()
        priority = client.allowed(priorities.from_wire(request.priority))
        call.priority = priorities.name_of(priority)
        with self._admission.admit(len(request.texts), now=now, deadline=call.deadline, caller=client) as permit:
            model, params = choose(request, call, self._registry, brownout_seconds=self._limits.brownout_seconds)
            with model.lease:
                translations, timings = await self._translator_of(model).translate(
                    request.texts,
                    params,
                    permit=permit,
                    deadline=call.deadline,
                    priority=priority,
                )
        of_model = self._metrics.model(model.info.name)
        of_model.translated(translations, timings, method=call.method, priority=call.priority)
        self._usage.add(client, usage_of(request.texts, translations))
        return to_response(translations, timings, model.info, beam_size=params.beam_size)

    async def list_models(self, request: pb.ListModelsRequest, context: object) -> pb.ListModelsResponse:
        """The loaded models that the caller may use; none while the server starts."""
        may_use = current_call().may_use
        infos = [loaded.info for loaded in self._registry.models if may_use(loaded.info.name)]
        return pb.ListModelsResponse(models=[to_model(info) for info in infos])


def add_to_server(servicer: TranslationServicer, server: grpc.aio.Server) -> None:
    """Serve `servicer` on `server`, with deserialisers that survive bad bytes."""
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Translate": grpc.unary_unary_rpc_method_handler(
            servicer.translate,
            request_deserializer=deserializer(pb.TranslateRequest),
            response_serializer=pb.TranslateResponse.SerializeToString,
        ),
        "ListModels": grpc.unary_unary_rpc_method_handler(
            servicer.list_models,
            request_deserializer=deserializer(pb.ListModelsRequest),
            response_serializer=pb.ListModelsResponse.SerializeToString,
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE_NAME, handlers),))


def to_response(
    translations: Sequence[Translation], timings: Timings, model: ModelInfo, *, beam_size: int
) -> pb.TranslateResponse:
    """The message for these records."""
    return pb.TranslateResponse(
        translations=[to_translation(translation) for translation in translations],
        model=model.name,
        model_version=model.version,
        timings=pb.Timings(**{name: getattr(timings, name) for name in Timings.__slots__}),
        beam_size=beam_size,
    )


def to_model(info: ModelInfo) -> pb.Model:
    """The message for a model's description."""
    return pb.Model(
        name=info.name,
        version=info.version,
        source_language=info.source_language,
        target_language=info.target_language,
        precision=info.precision,
        device=info.device,
        default_options=pb.TranslateOptions(
            **{name: getattr(info.default_options, name) for name in TranslateOptions.__slots__}
        ),
        max_source_tokens=info.max_source_tokens,
        max_beam_size=info.max_beam_size,
        has_shortlist=info.has_shortlist,
    )


def to_translation(translation: Translation) -> pb.Translation:
    """The message for one text's outcome."""
    if translation.error is not None:
        status = pb.Status(code=code_number(translation.error), message=str(translation.error))
        return pb.Translation(status=status, source_tokens=translation.source_tokens)
    hypotheses = [_to_hypothesis(hypothesis) for hypothesis in translation.hypotheses]
    return pb.Translation(status=pb.Status(), hypotheses=hypotheses, source_tokens=translation.source_tokens)


def _to_hypothesis(hypothesis: TranslatedText) -> pb.Hypothesis:
    return pb.Hypothesis(
        text=hypothesis.text,
        score=hypothesis.score,
        finish_reason=_FINISH_REASONS[hypothesis.finish_reason],
        target_tokens=hypothesis.target_tokens,
    )
