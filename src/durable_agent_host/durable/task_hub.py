"""The task hub's data of turns and sessions: inputs, results, events, custom statuses, and states of entities.

All data passes here on its way into or out of the task hub: unchanged, or encrypted (`encrypted_task_hub`).
"""

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from azure.durable_functions import DurableEntityContext, DurableOrchestrationClient, DurableOrchestrationContext
from azure.durable_functions.models.EntityStateResponse import EntityStateResponse

from durable_agent_host.durable.app_secret import AppSecret, Orchestrate, signal_purpose, start_purpose
from durable_agent_host.encryption.key_check import KeyCheck
from durable_agent_host.errors import CorruptStateError, strip_error_text
from durable_agent_host.redaction import mask_secrets

type Steps = Generator[Any, Any, Any]


def run_steps(steps: Steps, run_step: Callable[[Any], Steps], final: type[Exception] | tuple[()] = ()) -> Steps:
    """Run the steps of an orchestration in another way.

    Args:
        steps: of the orchestration.
        run_step: runs one; its result, or its error, is the step's.
        final: an error that the orchestration does not get: it ends with it.

    Returns:
        The orchestration's result.
    """
    advance: Callable[[Any], Any] = steps.send
    value: Any = None
    while True:
        try:
            step = advance(value)
        except StopIteration as end:
            return end.value
        try:
            value = yield from run_step(step)
        except final:
            steps.close()
            raise
        except Exception as error:  # noqa: BLE001 - the orchestration decides what a failed step means
            advance = steps.throw
            value = error
        else:
            advance = steps.send


@contextmanager
def masked_errors() -> Generator[None]:
    """Mask secrets in the error with which a function ends: the task hub stores its text and those of its causes."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - an edge: whatever ends a function
        masked_error = strip_error_text(error, mask_secrets(str(error)))
        raise masked_error from masked_error.__cause__


class UnreadableValue:
    """A damaged value of the task hub; raises an error where it is used.

    Args:
        error: the reason.
    """

    def __init__(self, error: CorruptStateError) -> None:
        self.error = error

    def __str__(self) -> str:
        """Return the reason."""
        return str(self.error)


class MarkingClient:
    """The SDK's client; what it starts and signals has the app's mark, and only an app that has the keys does so.

    Args:
        client: the SDK's, or one that wraps it.
        secret: of the app.
        keys: checks the store.
    """

    def __init__(self, client: Any, secret: AppSecret, keys: KeyCheck) -> None:
        self._client = client
        self._secret = secret
        self._keys = keys

    def __getattr__(self, name: str) -> Any:
        """Return what the client has."""
        return getattr(self._client, name)

    async def start_new(self, name: str, instance_id: str, client_input: Mapping[str, Any]) -> str:
        """Start an orchestration, as the app."""
        await self._keys.ready()
        await self._secret.ready()
        marked_input = self._secret.mark(start_purpose(name, instance_id), client_input)
        return await self._client.start_new(name, instance_id, marked_input)

    async def signal_entity(self, entity: Any, operation: str, value: Mapping[str, Any] | None = None) -> None:
        """Signal an entity, as the app."""
        await self._keys.ready()
        if value is not None:
            await self._secret.ready()
            value = self._secret.mark(signal_purpose(entity.name, entity.key, operation), value)
        await self._client.signal_entity(entity, operation, value)

    async def read_entity_state(self, entity: Any) -> Any:
        """Read an entity."""
        await self._keys.ready()
        return await read_entity(self._client, entity)


async def read_entity(client: Any, entity: Any) -> Any:
    """Read an entity with the SDK's client.

    Raises:
        CorruptStateError: its state is no JSON.
    """
    try:
        state = await client.read_entity_state(entity)
    except ValueError as error:
        raise _not_json(entity.name, entity.key) from error
    # The SDK (1.7) gives an empty text for the JSON `null`, which is no session.
    return state if state.entity_state != "" else EntityStateResponse(entity_exists=False)


def state_in(context: Any) -> Any:
    """Read the state in the SDK's context of an entity; None when it has none.

    Raises:
        CorruptStateError: it is no JSON.
    """
    try:
        return context.get_state()
    except ValueError as error:
        raise _not_json(context.entity_name, context.entity_key) from error


def _not_json(entity: str, key: str) -> CorruptStateError:
    return CorruptStateError(
        f"what the task hub stores of the entity @{entity}@{key} is damaged, and cannot be read: restore a copy, or "
        "delete this entity in the task hub; nothing was changed"
    )


class TaskHub:
    """The task hub of an app without keys: everything passes unchanged, unless the app had keys before.

    Without this check, an app that lost its setting would begin new plaintext sessions beside the encrypted ones.

    Args:
        keys: checks the store.
        secret: of the app; marks what the app's own client sends.

    Attributes:
        secret: the same.
    """

    def __init__(self, keys: KeyCheck, secret: AppSecret) -> None:
        self.secret = secret
        self._keys = keys

    async def check(self) -> None:
        """Check that what is stored can be read and added to, unless that has been done.

        Raises:
            EncryptionKeyError: it is encrypted, and the app does not have the key.
        """
        await self._keys.ready()

    def client(self, client: DurableOrchestrationClient) -> DurableOrchestrationClient:
        """Return the durable client of a function call."""
        return cast("Any", MarkingClient(client, self.secret, self._keys))

    def entity(self, context: DurableEntityContext) -> DurableEntityContext:
        """Return the context of an entity's operation."""
        self._keys.wait()
        try:
            state_in(context)
        except CorruptStateError:
            return cast("Any", _Damaged(context))
        return context

    def caller(self, context: DurableOrchestrationContext) -> DurableOrchestrationContext:
        """Return the context of an orchestration of the app, for this host's calls in it."""
        return context

    def end_of(self, instance_id: str, output: Any) -> Any:
        """Read the output of a sub-orchestration."""
        del instance_id
        return output

    def orchestrate(self, context: DurableOrchestrationContext, run: Orchestrate) -> Steps:
        """Run an orchestration of this host."""
        self._keys.wait()
        return run(context)

    async def run_activity(self, activity: str, payload: Any, operation: Callable[[Any], Awaitable[Any]]) -> Any:
        """Run an activity of this host, if nothing in the store is encrypted."""
        del activity
        await self._keys.ready()
        return await operation(payload)


class _Damaged:
    """The SDK's context of an entity whose state cannot be read, which says so."""

    def __init__(self, context: DurableEntityContext) -> None:
        self._context: Any = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def get_state(self, _: Callable[[], Any] | None = None) -> Any:
        return state_in(self._context)
