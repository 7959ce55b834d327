"""The SDK's client with answers of bounded size: its transport, and a copy of the app's client."""

# ruff: noqa: SLF001 - the SDK has no public way to copy a client with another transport

import copy
from functools import cache
from itertools import pairwise
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

from durable_agent_host.providers.bounded_sessions import BoundedSession

_COPIES: Final[WeakKeyDictionary[Any, Any]] = WeakKeyDictionary()
"""The app's clients → their copies, each with its own connections."""


@cache
def _transport_class() -> type[Any]:
    """Make the class of the SDK's transport whose answers are bounded."""
    from aiohttp import ClientSession, DummyCookieJar  # noqa: PLC0415 - loaded when used
    from azure.core.pipeline.transport import AioHttpTransport  # noqa: PLC0415 - the same

    class BoundedTransport(AioHttpTransport):
        async def open(self) -> None:
            if self.session is None and not self._has_been_opened:
                session = ClientSession(trust_env=self._use_env_settings, cookie_jar=DummyCookieJar())
                self.session = cast("Any", BoundedSession(session))
            transport: Any = super()
            await transport.open()

    return BoundedTransport


def bounded_transport() -> Any:
    """Make a transport for the SDK's client."""
    return _transport_class()()


def bounded_sdk(sdk: Any) -> Any:
    """Copy an app's client, with a transport whose answers are bounded.

    Guarantee: the given client is not changed; each has one copy.

    Args:
        sdk: the SDK's asynchronous client.

    Returns:
        The copy, with its own connections, configured as by the app; the client itself when its transport is already
        bounded, or was supplied by the app.
    """
    from azure.core.pipeline.transport import AioHttpTransport  # noqa: PLC0415 - loaded when used

    pipeline: Any = getattr(getattr(sdk, "_client", None), "_pipeline", None)
    transport: Any = getattr(pipeline, "_transport", None)
    if type(transport) is not AioHttpTransport or not transport._session_owner:
        return sdk
    if sdk not in _COPIES:
        _COPIES[sdk] = _copied(sdk, transport)
    return _COPIES[sdk]


def _copied(sdk: Any, transport: Any) -> Any:
    bounded = bounded_transport()
    bounded.connection_config = transport.connection_config
    bounded._use_env_settings = transport._use_env_settings
    client = copy.copy(sdk._client)
    client._pipeline = copy.copy(client._pipeline)
    client._pipeline._transport = bounded
    policies = [copy.copy(one) for one in cast("list[Any]", client._pipeline._impl_policies)]
    client._pipeline._impl_policies = policies
    for policy, following in pairwise(policies):
        policy.next = following
    policies[-1].next = copy.copy(policies[-1].next)
    policies[-1].next._sender = bounded
    copied: Any = copy.copy(sdk)
    for name, operations in list(cast("dict[str, Any]", vars(copied)).items()):
        if getattr(operations, "_client", None) is sdk._client:
            bound = copy.copy(operations)
            bound._client = client
            setattr(copied, name, bound)
    copied._client = client
    return copied
