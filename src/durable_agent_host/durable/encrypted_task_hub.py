"""The task hub with all data of turns and sessions encrypted.

Theory of operation. The SDK's client and contexts are wrapped: values are encrypted on their way into the task hub and
decrypted on their way out, so code that uses them reads and writes plain values. A value is bound to its kind, its
owner, and, as the result of a call, to the calling orchestration.

Unencrypted values are read as they are, and answered in plain: those older than the encryption, and those of the app's
own orchestrations and clients, which call the entity or the orchestration without this host. Only this host writes the
states of sessions, so the operator can have unencrypted ones refused.

Orchestrations and entities wait for missing keys, because a failure in them is final. Everything else fails, and can be
retried. An orchestration whose history is damaged fails at once: on replay, it cannot take another path than before.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from azure.durable_functions import DurableEntityContext, DurableOrchestrationClient, DurableOrchestrationContext
from azure.durable_functions.models import TaskBase

from durable_agent_host.codec.entity_state import read_envelope
from durable_agent_host.durable.app_secret import AppSecret, Orchestrate
from durable_agent_host.durable.task_hub import (
    MarkingClient,
    Steps,
    TaskHub,
    UnreadableValue,
    read_entity,
    run_steps,
    state_in,
)
from durable_agent_host.encryption.cipher import AssociatedData, Cipher
from durable_agent_host.encryption.key_check import KeyCheck
from durable_agent_host.errors import CorruptStateError, StateError


class EncryptedHub(TaskHub):
    """Encrypts data in the task hub.

    Args:
        cipher: of the app.
        keys: checks that the app has them.
        secret: of the app.
    """

    def __init__(self, cipher: Cipher, keys: KeyCheck, secret: AppSecret) -> None:
        super().__init__(keys, secret)
        self._cipher = cipher

    def client(self, client: DurableOrchestrationClient) -> DurableOrchestrationClient:
        """Return a client that encrypts and decrypts."""
        return cast("Any", MarkingClient(_Client(client, self._cipher, self._keys), self.secret, self._keys))

    def entity(self, context: DurableEntityContext) -> DurableEntityContext:
        """Return a context that encrypts and decrypts."""
        self._keys.wait()
        return cast("Any", _Entity(context, self._cipher))

    def caller(self, context: DurableOrchestrationContext) -> DurableOrchestrationContext:
        """Return a context that encrypts."""
        self._keys.wait()
        return cast("Any", _Orchestration(context, self._cipher))

    def end_of(self, instance_id: str, output: Any) -> Any:
        """Read the output of a sub-orchestration."""
        return self._cipher.decrypt_json(_end(instance_id), output)

    def orchestrate(self, context: DurableOrchestrationContext, run: Orchestrate) -> Steps:
        """Run an orchestration with a context that encrypts, and pass it decrypted results."""
        self._keys.wait()
        encrypting = _Orchestration(context, self._cipher)

        def run_step(task: Any) -> Steps:
            return encrypting.read(task, (yield task))

        # what cannot be decrypted is final, whatever the orchestration decided when it was readable
        end: Any = yield from run_steps(run(cast("Any", encrypting)), run_step, final=StateError)
        return encrypting.encrypt_end(end)

    async def run_activity(self, activity: str, payload: Any, operation: Callable[[Any], Awaitable[Any]]) -> Any:
        """Run an activity, and encrypt its result when its input was encrypted."""
        await self._keys.ready()
        caller, payload = _decrypt_input(self._cipher, ("hub", "activity", activity), payload)
        result = await operation(payload)
        return result if caller is None else self._cipher.encrypt_json(_activity_result(activity, caller), result)


class _Client:
    """The SDK's client, encrypting."""

    def __init__(self, client: DurableOrchestrationClient, cipher: Cipher, keys: KeyCheck) -> None:
        self._client: Any = client
        self._cipher = cipher
        self._keys = keys

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def start_new(self, name: str, instance_id: str, client_input: Any = None) -> str:
        return await self._client.start_new(
            name, instance_id, self._cipher.encrypt_json(_start(instance_id), client_input)
        )

    async def raise_event(self, instance_id: str, event_name: str, event_data: Any = None) -> None:
        await self._keys.ready()
        if event_data is not None:
            event_data = self._cipher.encrypt_json(_event(instance_id, event_name), event_data)
        await self._client.raise_event(instance_id, event_name, event_data)

    async def signal_entity(self, entity: Any, operation: str, operation_input: Any = None) -> None:
        if operation_input is not None:
            operation_input = _call(self._cipher, _operation(entity.name, entity.key, operation), "", operation_input)
        await self._client.signal_entity(entity, operation, operation_input)

    async def read_entity_state(self, entity: Any) -> Any:
        state = await read_entity(self._client, entity)
        if state.entity_exists and state.entity_state is not None:
            associated_data = _state(entity.name, entity.key)
            state._entity_state = self._cipher.read_json(associated_data, state.entity_state)  # noqa: SLF001
        return state

    async def get_status(self, instance_id: str, **options: Any) -> Any:
        status = await self._client.get_status(instance_id, **options)
        if status:
            await self._keys.ready()
            for field, associated_data_for in (
                ("_input", _start),
                ("_output", _end),
                ("_custom_status", _custom_status),
            ):
                value = getattr(status, field, None)
                if read_envelope(value) is None:
                    continue
                try:
                    plain_value = self._cipher.decrypt_json(associated_data_for(instance_id), value)
                except CorruptStateError as error:
                    if field == "_input":  # without it, nobody can tell whose it is
                        raise
                    plain_value = UnreadableValue(error)
                setattr(status, field, plain_value)
        return status


class _Entity:
    """The SDK's context of an entity's operation, encrypting."""

    def __init__(self, context: DurableEntityContext, cipher: Cipher) -> None:
        self._context: Any = context
        self._cipher = cipher
        self._caller: str | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    @property
    def _names(self) -> tuple[str, str]:
        return str(self._context.entity_name), str(self._context.entity_key)

    def get_state(self, initializer: Callable[[], Any] | None = None) -> Any:
        state = state_in(self._context)
        if state is None:
            return initializer() if initializer is not None else None
        return self._cipher.read_json(_state(*self._names), state)

    def set_state(self, state: Any) -> None:
        self._context.set_state(self._cipher.encrypt_json(_state(*self._names), state))

    def get_input(self) -> Any:
        associated_data = _operation(*self._names, str(self._context.operation_name))
        self._caller, value = _decrypt_input(self._cipher, associated_data, self._context.get_input())
        return value

    def set_result(self, result: Any) -> None:
        if self._caller is not None:
            operation = _operation(*self._names, str(self._context.operation_name))
            result = self._cipher.encrypt_json((*operation, "result", self._caller), result)
        self._context.set_result(result)


class _Orchestration:
    """The SDK's context of an orchestration: encrypts outgoing values, and decrypts the results of its tasks."""

    def __init__(self, context: DurableOrchestrationContext, cipher: Cipher) -> None:
        self._context: Any = context
        self._cipher = cipher
        self._id = str(context.instance_id)
        self._data_by_task: dict[int, tuple[Any, AssociatedData]] = {}
        self._is_encrypted = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def get_input(self) -> Any:
        value = self._context.get_input()
        self._is_encrypted = read_envelope(value) is not None
        return self._cipher.decrypt_json(_start(self._id), value)

    def set_custom_status(self, status: Any) -> None:
        self._context.set_custom_status(self._cipher.encrypt_json(_custom_status(self._id), status))

    def call_activity(self, name: str, value: Any = None) -> Any:
        task = self._context.call_activity(name, _call(self._cipher, ("hub", "activity", name), self._id, value))
        return self._bind_result(task, _activity_result(name, self._id))

    def call_entity(self, entity: Any, operation: str, value: Any = None) -> Any:
        associated_data = _operation(entity.name, entity.key, operation)
        task = self._context.call_entity(entity, operation, _call(self._cipher, associated_data, self._id, value))
        return self._bind_result(task, (*associated_data, "result", self._id))

    def signal_entity(self, entity: Any, operation: str, value: Any = None) -> None:
        associated_data = _operation(entity.name, entity.key, operation)
        self._context.signal_entity(entity, operation, _call(self._cipher, associated_data, self._id, value))

    def call_sub_orchestrator(self, name: str, value: Any, instance_id: str) -> Any:
        return self._context.call_sub_orchestrator(
            name, self._cipher.encrypt_json(_start(instance_id), value), instance_id
        )

    def wait_for_external_event(self, name: str) -> Any:
        return self._bind_result(self._context.wait_for_external_event(name), _event(self._id, name))

    def _bind_result(self, task: Any, associated_data: AssociatedData) -> Any:
        self._data_by_task[id(task)] = task, associated_data
        return task

    def read(self, task: Any, value: Any) -> Any:
        """Decrypt a task's result; of several tasks, the first one's result."""
        if isinstance(value, TaskBase):
            value.result = self.read(value, value.result)
            return value
        _, associated_data = self._data_by_task.get(id(task), (None, None))
        return value if associated_data is None else self._cipher.decrypt_json(associated_data, value)

    def encrypt_end(self, output: Any) -> Any:
        """Encrypt the output, unless the waiting caller does not use encryption."""
        return self._cipher.encrypt_json(_end(self._id), output) if self._is_encrypted else output


def _call(cipher: Cipher, associated_data: AssociatedData, caller: str, value: Any) -> Mapping[str, Any]:
    """Encrypt the input of a call, with the orchestration that receives the result."""
    return cipher.encrypt_json(associated_data, [caller, value])


def _decrypt_input(cipher: Cipher, associated_data: AssociatedData, payload: Any) -> tuple[str | None, Any]:
    """Decrypt the input of a call; the caller is None if it was not encrypted."""
    if read_envelope(payload) is None:
        return None, payload
    caller, value = cipher.decrypt_json(associated_data, payload)
    return caller, value


def _start(instance_id: str) -> AssociatedData:
    return ("hub", "start", instance_id)


def _end(instance_id: str) -> AssociatedData:
    return ("hub", "end", instance_id)


def _custom_status(instance_id: str) -> AssociatedData:
    return ("hub", "status", instance_id)


def _event(instance_id: str, name: str) -> AssociatedData:
    return ("hub", "event", instance_id, name)


def _activity_result(activity: str, caller: str) -> AssociatedData:
    return ("hub", "returned", activity, caller)


def _state(entity: str, key: str) -> AssociatedData:
    return ("state", entity.lower(), key)


def _operation(entity: str, key: str, operation: str) -> AssociatedData:
    return ("operation", entity.lower(), key, operation)
