"""dragoman.v1.TranslationService, all methods but TranslateStream: messages to records and back.

Errors leave as exceptions of `errors.py`; the interceptor gives them a status.
"""

import grpc
import grpc.aio

from protos import translation_pb2 as pb
from service.grpc.codec import add_service, decode_request, encode_model, encode_result, unary
from service.records import Call
from service.translation.pipeline import Pipeline

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["TranslationService"].full_name


class TranslationServicer:
    """Answers Translate and ListModels."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    async def translate(self, request: pb.TranslateRequest, call: Call) -> pb.TranslateResponse:
        """Return one translation per text; the contract has the statuses."""
        result = await self._pipeline.translate(decode_request(request), call)
        return encode_result(result, call)

    async def list_models(self, request: pb.ListModelsRequest, call: Call) -> pb.ListModelsResponse:
        """Return the loaded models that the caller may use; none while the server starts."""
        infos = [model.info for model in self._pipeline.catalogue.models if call.may_use(model.info.name)]
        return pb.ListModelsResponse(models=[encode_model(info) for info in infos])


def add_to_server(servicer: TranslationServicer, server: grpc.aio.Server) -> None:
    """Serve `servicer` on `server`."""
    methods = {
        "Translate": unary(servicer.translate, pb.TranslateRequest),
        "ListModels": unary(servicer.list_models, pb.ListModelsRequest),
    }
    add_service(server, SERVICE_NAME, methods)
