"""The ASGI applications of a server: which routes are served at which address, and what an error looks like.

A dialect is a module with a function that returns its routes, and a line in `create_apps`.
"""

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from service.http.operations import Operations
from service.telemetry.logs import describe_error, get_logger


def create_apps(operations: Operations, *, max_body_bytes: int, separate_metrics: bool) -> tuple[Starlette, Starlette]:
    """Return the application of the HTTP port and that of the metrics port; they differ if `separate_metrics`."""
    routes, metrics = operations.health_routes(), operations.metrics_routes()
    if not separate_metrics:
        routes = metrics = [*metrics, *routes]
    return create_app(routes, max_body_bytes=max_body_bytes), create_app(metrics, max_body_bytes=max_body_bytes)


def create_app(routes: Sequence[Route], *, max_body_bytes: int) -> Starlette:
    """Return an application of these routes whose errors are a line of text that quotes nothing of the request.

    Args:
        max_body_bytes: a request with a longer body is answered with 413.
    """
    paths = " ".join(route.path for route in routes)

    async def not_found(_: Request, __: Exception) -> Response:
        return PlainTextResponse(f"try {paths}\n", status_code=404)

    app = Starlette(
        routes=routes,
        exception_handlers={404: not_found, HTTPException: _refused, Exception: _failed},
        max_body_size=max_body_bytes,
    )
    app.router.redirect_slashes = False
    return app


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return PlainTextResponse(f"{error.detail}\n", status_code=error.status_code, headers=error.headers)


async def _failed(request: Request, error: Exception) -> Response:
    path = getattr(request.scope.get("route"), "path", "")
    get_logger().error("page_failed", path=path, **describe_error(error))
    return PlainTextResponse("the log has the error\n", status_code=500)
