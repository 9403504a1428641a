"""The one message of calls that need no key: awaited here, where their number and their time are bounded.

grpc.aio gives a unary call to its handler together with its message.  Until then the call holds one of the places that
`maximum_concurrent_rpcs` counts, unseen and without a clock: strangers who send headers alone could take all of them.
A stream's handler begins with the headers, so methods that strangers may call are served as streams of one message.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from service.errors import InvalidInput
from service.grpc.wire import Malformed

MESSAGE_WITHIN_S = 5.0
MAX_WAITING = 64  # half of the places for open streams, of which a Watch takes one before its message is there

Requests = AsyncIterator[Any]
StreamBehaviour = Callable[[Requests, object], AsyncIterator[object]]


class FirstMessages:
    """Calls that wait for their message; beyond `max_waiting` the one that has waited longest has to go.

    A client that means it sends the message right behind the headers, so it is never the one.
    """

    def __init__(self, *, within_s: float = MESSAGE_WITHIN_S, max_waiting: int = MAX_WAITING) -> None:
        self._within_s = within_s
        self._max_waiting = max_waiting
        self._waiting: dict[asyncio.Timeout, None] = {}  # in the order in which they began

    async def first_of(self, requests: Requests) -> Any:
        """The message.

        Raises:
            InvalidInput: it is malformed, or did not come.
        """
        try:
            async with asyncio.timeout(self._within_s) as waiting:
                request = await self._next(requests, waiting)
        except (TimeoutError, StopAsyncIteration):
            raise InvalidInput("the call came without a message", field="") from None
        if isinstance(request, Malformed):
            raise InvalidInput(request.message, field=request.field)
        return request

    async def _next(self, requests: Requests, waiting: asyncio.Timeout) -> Any:
        self._waiting[waiting] = None
        try:
            if len(self._waiting) > self._max_waiting:
                oldest = next(iter(self._waiting))
                del self._waiting[oldest]
                if not oldest.expired():  # else it is leaving by itself
                    oldest.reschedule(asyncio.get_running_loop().time())
            return await anext(requests)
        finally:
            self._waiting.pop(waiting, None)

    def answering(self, behaviour: Callable[[Any, object], Awaitable[object]]) -> StreamBehaviour:
        """A unary method's behaviour as a stream's."""

        async def answer(requests: Requests, context: object) -> AsyncIterator[object]:
            yield await behaviour(await self.first_of(requests), context)

        return answer

    def streaming(self, behaviour: Callable[[Any, object], AsyncIterator[object]]) -> StreamBehaviour:
        """The same for a method that answers with a stream."""

        async def answer(requests: Requests, context: object) -> AsyncIterator[object]:
            async for response in behaviour(await self.first_of(requests), context):
                yield response

        return answer
