"""grpc.health.v1 and server reflection, as their own clients see them."""

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from tests.fakes.calls import calling, failure
from tests.fakes.server_process import ServerProcess

SERVICE = "dragoman.v1.TranslationService"
HEALTH = "grpc.health.v1.Health"
FOREIGN = ("google.cloud.translation.v3.TranslationService", "inference.GRPCInferenceService")
REFLECTION = ["grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"]
Status = health_pb2.HealthCheckResponse
Request = reflection_pb2.ServerReflectionRequest


@pytest.fixture
async def health(server):
    async with calling(server.address) as calls:
        yield calls.health


def asking(service: str) -> health_pb2.HealthCheckRequest:
    return health_pb2.HealthCheckRequest(service=service)


class TestHealth:
    @pytest.mark.promise("G5")
    async def test_check_of_an_unknown_service_is_not_found(self, health):
        error = await failure(health.Check(asking("nobody.Service")))

        assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, "there is no service 'nobody.Service'")

    @pytest.mark.promise("G5")
    @pytest.mark.parametrize(
        ("service", "status"), [("", Status.SERVING), (SERVICE, Status.SERVING), ("x", Status.SERVICE_UNKNOWN)]
    )
    async def test_watch_begins_with_the_status_of_now(self, health, service, status):
        watch = health.Watch(asking(service))

        assert (await watch.read()).status == status
        watch.cancel()

    async def test_every_service_that_reflection_lists_can_be_checked_and_watched(self, server, health):
        (listed,) = ask(server, REFLECTION[0], Request(list_services=""))
        for service in listed.list_services_response.service:
            watch = health.Watch(asking(service.name))

            assert (await health.Check(asking(service.name))).status == Status.SERVING
            assert (await watch.read()).status == Status.SERVING
            watch.cancel()


def ask(server: ServerProcess, service: str, *requests: Request) -> list[reflection_pb2.ServerReflectionResponse]:
    """Answers of one version of reflection to these questions."""
    with grpc.insecure_channel(server.address) as channel:
        method = channel.stream_stream(
            f"/{service}/ServerReflectionInfo",
            reflection_pb2.ServerReflectionRequest.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString,
        )
        return list(method(iter(requests), timeout=120.0))


class TestReflection:
    @pytest.mark.parametrize("version", REFLECTION)
    def test_both_versions_describe_every_service_they_list(self, server, version):
        question = Request(list_services="")
        (listed,) = ask(server, version, question)
        names = [service.name for service in listed.list_services_response.service]

        answers = ask(
            server,
            version,
            *(Request(file_containing_symbol=name) for name in names),
        )

        assert sorted(names) == sorted([SERVICE, *FOREIGN, HEALTH, *REFLECTION])
        assert all(answer.file_descriptor_response.file_descriptor_proto for answer in answers)

    @pytest.mark.promise("F6")
    async def test_reflection_can_be_switched_off(self, start_server):
        server = start_server(DRAGOMAN_LISTEN__REFLECTION="false")
        async with calling(server.address) as calls:
            stream = calls.stream(f"/{REFLECTION[0]}/ServerReflectionInfo")

            assert (await failure(stream.read())).code() is grpc.StatusCode.UNIMPLEMENTED
