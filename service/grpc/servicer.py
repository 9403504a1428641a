"""dragoman.v1.TranslationService, all methods but TranslateStream: messages to records and back.

Errors leave as exceptions of `errors.py`; `call_handlers.py` gives them a status.
"""

from protos import translation_pb2 as pb
from service.call import Call
from service.grpc.codec import decode_request, encode_detected, encode_model, encode_result
from service.grpc.score_codec import decode_score_request, encode_scores
from service.grpc.wire import Handler, unary
from service.registry.model_info import languages_of
from service.translation.routing import Router
from service.translation.scoring import score

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["TranslationService"].full_name
TRANSLATE = f"{SERVICE_NAME}/Translate"
SCORE = f"{SERVICE_NAME}/Score"


class TranslationServicer:
    """Answers Translate, Score, DetectLanguage and ListModels."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def translate(self, request: pb.TranslateRequest, call: Call) -> pb.TranslateResponse:
        """Return one translation per text; the contract has the statuses."""
        result = await self._router.translate(decode_request(request), call)
        return encode_result(result, call)

    async def score(self, request: pb.ScoreRequest, call: Call) -> pb.ScoreResponse:
        """Return one score per pair; the contract has the statuses."""
        return encode_scores(await score(self._router.translator, decode_score_request(request), call))

    async def detect_language(self, request: pb.DetectLanguageRequest, call: Call) -> pb.DetectLanguageResponse:
        """Return the language of each text; the contract has the statuses."""
        return encode_detected(await self._router.detect(request.texts, call))

    async def list_models(self, request: pb.ListModelsRequest, call: Call) -> pb.ListModelsResponse:
        """Return the models that the caller may use; none while the server starts."""
        infos = self._router.infos(call)
        return pb.ListModelsResponse(models=[encode_model(info, languages_of(info)) for info in infos])


def handlers(servicer: TranslationServicer) -> dict[str, Handler]:
    """Return the handlers of these methods, by their full names."""
    return {
        TRANSLATE: unary(servicer.translate, pb.TranslateRequest),
        SCORE: unary(servicer.score, pb.ScoreRequest),
        f"{SERVICE_NAME}/DetectLanguage": unary(servicer.detect_language, pb.DetectLanguageRequest),
        f"{SERVICE_NAME}/ListModels": unary(servicer.list_models, pb.ListModelsRequest),
    }
