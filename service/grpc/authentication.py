"""May this call be made, and in whose name: API keys, roles, identity.

Decides from the method and the metadata alone, so before a byte of the request is read.  A key is sent as
`authorization: Bearer KEY`.  Health needs none, so that balancers can ask; dragoman.admin.v1 needs one with admin
rights; everything else, reflection and unknown methods included, needs any.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import NoReturn

from service.config import SecurityConfig
from service.errors import PermissionDenied, Unauthenticated
from service.grpc import health
from service.grpc.api_keys import ApiKey, KeyFile
from service.grpc.identity import Metadata, TrustedProxies, identify, trusted_proxies
from service.queue.callers import Caller

AUTHORIZATION = "authorization"
_OPEN = f"{health.SERVICE_NAME}/"
_ADMIN = "dragoman.admin."
_SCHEME = "bearer"


class Authenticator:
    """Answers for one server; without keys everybody may call everything."""

    def __init__(
        self,
        keys: KeyFile | None = None,
        proxies: TrustedProxies | None = None,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._keys = keys
        self._proxies = proxies
        self._clock = clock

    def authenticate(self, method: str, metadata: Metadata) -> ApiKey | None:
        """The key that the call is made with; None where none is needed.

        Args:
            method: "package.Service/Method".

        Raises:
            Unauthenticated: no key, or none that is good.
            PermissionDenied: the key may not call this.
        """
        if self._keys is None or method.startswith(_OPEN):
            return None
        presented = _presented_key(metadata)
        key = self._keys.keys.find(presented)
        if key is None:
            raise Unauthenticated("the API key is not known here")
        if key.is_expired(self._clock()):
            raise Unauthenticated(f"the API key of {key.client.name} has expired")
        if method.startswith(_ADMIN) and not key.is_admin:
            raise PermissionDenied(f"the API key of {key.client.name} has no admin rights")
        return key

    def client_of(self, key: ApiKey | None, metadata: Metadata, peer: str) -> Caller:
        """In whose name the call is made: the key's, else a trusted proxy's word, else the peer's address."""
        return key.client if key else identify(peer, metadata, self._proxies)


def authenticator(config: SecurityConfig) -> Authenticator:
    """What the settings ask for.

    Raises:
        ConfigError: the file of keys or a setting is wrong.
    """
    keys = KeyFile(config.api_keys, period_s=config.reload_s) if config.api_keys else None
    return Authenticator(keys, trusted_proxies(config))


def _presented_key(metadata: Metadata) -> str:
    values = [value for name, value in metadata if name == AUTHORIZATION]
    if not values:
        _refuse("an API key is needed: send it as metadata `authorization: Bearer KEY`")
    if len(values) > 1 or not isinstance(values[0], str):
        _refuse("one `authorization` is accepted, not several")
    scheme, _, key = values[0].partition(" ")
    if scheme.lower() != _SCHEME or not key.strip():
        _refuse("`authorization` is accepted as `Bearer KEY` only")
    return key.strip()


def _refuse(message: str) -> NoReturn:
    raise Unauthenticated(message)
