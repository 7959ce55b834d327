"""The task hub of an app without keys: everything passes unchanged, unless the app had keys before.

Without this check, an app that lost its setting would begin new plaintext sessions beside the encrypted ones.
"""

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, cast

from azure.durable_functions import DurableEntityContext, DurableOrchestrationClient, DurableOrchestrationContext

from durable_agent_host.codec.envelope import read_envelope
from durable_agent_host.durable.app_secret import AppSecret, Orchestrate
from durable_agent_host.durable.hub import Hub, MarkingClient, Steps, read_entity, state_in
from durable_agent_host.encryption.keys_home import NoKeys
from durable_agent_host.errors import CorruptStateError


class PlainHub(Hub):
    """Passes everything unchanged, once the store has reported that it has no data keys.

    Args:
        no_keys: checks the store.
        secret: of the app.
    """

    def __init__(self, no_keys: NoKeys, secret: AppSecret) -> None:
        super().__init__(secret)
        self._no_keys = no_keys

    async def check(self) -> None:
        """Refuse to go on where an app with keys was."""
        await self._no_keys.check()

    def client(self, client: DurableOrchestrationClient) -> DurableOrchestrationClient:
        """Return a client that checks first."""
        return cast("Any", MarkingClient(_Client(client, self._no_keys), self.secret))

    def entity(self, context: DurableEntityContext) -> DurableEntityContext:
        """Return the context; a state that is encrypted, or would be, is left to a process that has the keys."""
        try:
            self._no_keys.wait(is_encrypted=read_envelope(state_in(context)) is not None)
        except CorruptStateError:
            return cast("Any", _Damaged(context))
        return context

    def orchestrate(self, context: DurableOrchestrationContext, run: Orchestrate) -> Steps:
        """Run an orchestration; leave an encrypted one to a process that has the keys."""
        given: Any = None
        with suppress(TypeError, ValueError):  # the orchestration reports input that is not JSON
            given = json.loads(cast("Any", context)._input)  # noqa: SLF001 - the SDK would make objects of it
        if read_envelope(given) is not None:
            self._no_keys.wait(is_encrypted=True)
        return run(context)

    async def carry_out(self, activity: str, given: Any, work: Callable[[Any], Awaitable[Any]]) -> Any:
        """Run an activity, if the store has no data keys."""
        await self._no_keys.check()
        return await super().carry_out(activity, given, work)


class _Damaged:
    """The SDK's context of an entity whose state cannot be read, which says so."""

    def __init__(self, context: DurableEntityContext) -> None:
        self._context: Any = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def get_state(self, _: Callable[[], Any] | None = None) -> Any:
        return state_in(self._context)


class _Client:
    """The SDK's client; checks the store before it acts."""

    def __init__(self, client: DurableOrchestrationClient, no_keys: NoKeys) -> None:
        self._client: Any = client
        self._no_keys = no_keys

    async def read_entity_state(self, entity: Any) -> Any:
        await self._no_keys.check()
        return await read_entity(self._client, entity)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if not iscoroutinefunction(found):
            return found

        @wraps(found)
        async def asked_first(*given: Any, **named: Any) -> Any:
            await self._no_keys.check()
            return await found(*given, **named)

        return asked_first
