"""A client of the admin port: the server's status, a reload of its models, the level of its log."""

from types import TracebackType
from typing import Any, Self, cast

import grpc

from protos import admin_pb2 as pb
from protos.admin_pb2_grpc import AdminServiceStub
from service.client.channel import ClientConfig, call_metadata, open_direct_channel
from service.client.failures import CLOSED, domain_error, explained
from service.errors import DeadlineExceeded, Unavailable
from service.ranges import SECONDS

DEFAULT_ADMIN_ADDRESS = "127.0.0.1:50052"
_SWITCH_ON = "the admin port is off by default, switch it on with `dragoman serve --admin-port 50052`"


class AdminClient:
    """Calls a server's admin port and blocks until it answers; raises DragomanError where there is no answer."""

    def __init__(self, address: str = DEFAULT_ADMIN_ADDRESS, config: ClientConfig | None = None) -> None:
        self.address = address
        self._config = config or ClientConfig()
        self._channel = open_direct_channel(address, self._config)
        self._stub: Any = AdminServiceStub(self._channel)

    def status(self, max_requests: int = 0, timeout_s: float = 5.0) -> pb.GetStatusResponse:
        """Return what the server is doing now; see the contract."""
        request = pb.GetStatusRequest(max_requests=max_requests)
        return cast("pb.GetStatusResponse", self._call(self._stub.GetStatus, request, timeout_s))

    def reload_models(self, model: str = "", timeout_s: float = 600.0) -> pb.ReloadModelsResponse:
        """Have the server look at its models again; raises FailedPrecondition if a bundle was refused."""
        request = pb.ReloadModelsRequest(model=model)
        return cast("pb.ReloadModelsResponse", self._call(self._stub.ReloadModels, request, timeout_s))

    def set_log_level(self, level: str, timeout_s: float = 5.0) -> str:
        """Change the level of the server's log and return the level before."""
        return str(self._call(self._stub.SetLogLevel, pb.SetLogLevelRequest(level=level), timeout_s).previous)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, method: Any, request: object, timeout_s: float) -> Any:
        SECONDS.check("timeout_s", timeout_s)
        try:
            return method(request, timeout=timeout_s, metadata=call_metadata(self._config))
        except ValueError as error:  # gRPC's word for a channel that is closed
            raise Unavailable(CLOSED) from error
        except grpc.RpcError as error:
            match error.code():
                case grpc.StatusCode.UNIMPLEMENTED:
                    why = f"the server at {self.address} has no admin service there"
                case grpc.StatusCode.UNAVAILABLE:
                    why = f"no admin port answers at {self.address} ({explained(error.details())})"
                case grpc.StatusCode.DEADLINE_EXCEEDED:
                    why = f"no answer from the admin port at {self.address} within {timeout_s:g} s"
                    raise DeadlineExceeded(why) from error
                case _:
                    raise domain_error(error) from error
            raise Unavailable(f"{why}; {_SWITCH_ON}") from error
