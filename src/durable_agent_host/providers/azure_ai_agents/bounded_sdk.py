"""The SDK's client with limited responses: its transport, and a copy of the app's client."""

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
    """Create the class of the SDK's transport with limited responses."""
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


def copy_with_limits(sdk: Any) -> Any:
    """Copy an app's client, with a transport with limited responses.

    Guarantee: the client is not changed; each has one copy.

    Args:
        sdk: the SDK's asynchronous client.

    Returns:
        The copy, with its own connections, configured as by the app; the client itself when its transport is already
        limited, or was supplied by the app.
    """
    from azure.core.pipeline.transport import AioHttpTransport  # noqa: PLC0415 - loaded when used

    pipeline: Any = getattr(getattr(sdk, "_client", None), "_pipeline", None)
    transport: Any = getattr(pipeline, "_transport", None)
    if type(transport) is not AioHttpTransport or not transport._session_owner:
        return sdk
    if sdk not in _COPIES:
        _COPIES[sdk] = _copy_sdk(sdk, transport)
    return _COPIES[sdk]


def _copy_sdk(sdk: Any, transport: Any) -> Any:
    limited_transport = bounded_transport()
    limited_transport.connection_config = transport.connection_config
    limited_transport._use_env_settings = transport._use_env_settings
    client = copy.copy(sdk._client)
    client._pipeline = copy.copy(client._pipeline)
    client._pipeline._transport = limited_transport
    policies = [copy.copy(policy) for policy in cast("list[Any]", client._pipeline._impl_policies)]
    client._pipeline._impl_policies = policies
    for policy, next_policy in pairwise(policies):
        policy.next = next_policy
    policies[-1].next = copy.copy(policies[-1].next)
    policies[-1].next._sender = limited_transport
    sdk_copy: Any = copy.copy(sdk)
    for name, operations in list(cast("dict[str, Any]", vars(sdk_copy)).items()):
        if getattr(operations, "_client", None) is sdk._client:
            operations_copy = copy.copy(operations)
            operations_copy._client = client
            setattr(sdk_copy, name, operations_copy)
    sdk_copy._client = client
    return sdk_copy
