"""API keys of the real server: who gets in, who does not, and how often that is logged."""

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2

from service.api.auth import generate_key
from tests.fakes.calls import LIST_MODELS, TRANSLATE, Calls, calling, details_of, eventually, failure
from tests.fakes.secured_server import QUICK, Code, Keys, code_with, events, guarded, keys, retried, with_key
from tests.fakes.server_process import ServerProcess

__all__ = ["guarded", "keys"]

GET_STATUS = "/dragoman.admin.v1.AdminService/GetStatus"
REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"


class TestKeys:
    async def test_a_good_key_opens_and_every_other_caller_is_refused(self, guarded, keys):
        async with calling(guarded.address) as calls:
            good = await calls.translate("a", metadata=with_key(keys.shop))
            missing = await failure(calls.translate("a"))
            wrong = await failure(calls.translate("a", metadata=with_key(generate_key())))
            other_scheme = await failure(calls.translate("a", metadata=(("authorization", f"Basic {keys.shop}"),)))
            for_another_model = await failure(calls.translate("a", metadata=with_key(keys.elsewhere)))

        assert good.translations[0].hypotheses[0].text == "a"
        assert [error.code() for error in (missing, wrong, other_scheme)] == [Code.UNAUTHENTICATED] * 3
        assert details_of(missing) == "an API key is needed: send it as `authorization: Bearer KEY`"
        assert details_of(wrong) == "the server does not know this API key: use a valid one"
        assert for_another_model.code() is Code.NOT_FOUND
        assert details_of(for_another_model) == "there is no model; loaded: none"  # no name that is not the caller's
        await eventually(lambda: guarded.metric("dragoman_requests_total", code="UNAUTHENTICATED") == 3.0)
        await eventually(lambda: guarded.metric("dragoman_requests_total", code="NOT_FOUND") == 1.0)

    async def test_health_needs_no_key_and_everything_else_does(self, guarded, keys):
        async with calling(guarded.address) as calls:
            health = await calls.health.Check(health_pb2.HealthCheckRequest())
            codes = [await code_with(calls, method, "wrong") for method in (LIST_MODELS, "/nobody.Service/Nothing")]
            reflection = calls.stream(REFLECTION)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await reflection.read()

        assert health.status == health_pb2.HealthCheckResponse.SERVING
        assert [*codes, refused.value.code()] == [Code.UNAUTHENTICATED] * 3

    async def test_admin_methods_are_not_on_the_port_of_translations(self, guarded, keys):
        """And whoever has no admin key does not even learn that."""
        async with calling(guarded.address) as calls:
            assert await code_with(calls, GET_STATUS, keys.shop) is Code.PERMISSION_DENIED
            assert await code_with(calls, GET_STATUS, keys.admin) is Code.UNIMPLEMENTED

    async def test_changed_keys_are_taken_without_a_restart_and_a_broken_file_changes_nothing(
        self, start_server, tmp_path
    ):
        keys = Keys(tmp_path / "changing.toml")
        server = start_server(DRAGOMAN_SECURITY__API_KEYS=str(keys.file), DRAGOMAN_SECURITY__RELOAD_S=QUICK)
        async with calling(server.address) as calls:
            new = keys.add("new")
            await retried(lambda: is_good(calls, new))

            keys.file.write_text("[[keys]")
            await retried(lambda: noticed_by_call(server, calls, "api_keys_not_reloaded"))
            for _ in range(3):  # more looks at the broken file
                await asyncio.sleep(float(QUICK))
                assert await is_good(calls, new)

            keys.file.unlink()
            successor = Keys(keys.file)
            await retried(lambda: is_good(calls, successor.shop))
            assert not await is_good(calls, new)

        (event,) = events(server, "api_keys_not_reloaded")
        assert event["reason"].startswith(f"security.api_keys: {keys.file} is not valid TOML")


async def is_good(calls: Calls, key: str) -> bool:
    return await code_with(calls, TRANSLATE, key) is Code.OK


async def noticed_by_call(server: ServerProcess, calls: Calls, event: str) -> bool:
    await code_with(calls, TRANSLATE, "any")
    return bool(events(server, event))
