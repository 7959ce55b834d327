"""Commands and queries of clients on instances and entities.

Source: ``HttpApiHandler.cs`` and ``DurableClient.cs`` of azure-functions-durable-extension 2.13.
"""

import asyncio
import re
from dataclasses import replace

from functions_host.engine.entities import format_entity_id, parse_entity_id
from functions_host.engine.episodes import encode_end
from functions_host.engine.events import EventRaised, Operation
from functions_host.engine.queries import InstanceFilter, list_ended
from functions_host.engine.sdk_wire import encode_event, encode_text
from functions_host.engine.store_records import EntityRecord, InstanceRecord, NewInstance
from functions_host.engine.worker import Worker

_BAD_ID = re.compile(r"[/\\#?\x00-\x1f\x7f-\x9f]")
_MAX_ID_LENGTH = 100
_PURGE_BATCH = 100
_COMMIT_WAIT_SECONDS = 0.25


class TaskHubError(Exception):
    """A refused command; nothing was changed."""


class BadRequestError(TaskHubError):
    """A malformed request, or an unknown function."""


class InstanceNotFoundError(TaskHubError):
    """There is no such instance."""


class InstanceCompletedError(TaskHubError):
    """The instance has already ended."""


class ConflictError(TaskHubError):
    """The instance is in a state that does not allow the command."""


class TaskHub:
    """The orchestrations and entities of one store, for clients.

    Guarantee: a command that returns is committed.

    Args:
        worker: runs them.
        replaces_running: whether a start replaces a running instance of the same id, instead of being refused.
    """

    def __init__(self, worker: Worker, *, replaces_running: bool = False) -> None:
        self._worker = worker
        self._replaces_running = replaces_running
        self._store = worker.store

    def start(self, name: str, instance_id: str | None, input_json: str | None, version: str = "") -> str:
        """Start an orchestration; returns its id.

        Raises:
            BadRequestError: no such orchestrator, or an id that is not allowed.
            ConflictError: an instance with this id has not ended yet.
        """
        function_names = self._worker.functions.catalog.orchestrators
        if name.lower() not in function_names:
            names = ", ".join(sorted(function_names)) or "none"
            raise BadRequestError(
                f"The function '{name}' doesn't exist, is disabled, or is not an orchestrator function. "
                f"Additional info: the following are the known orchestrator functions: {names}"
            )
        instance_id = instance_id or self._worker.new_id()
        if instance_id.startswith("@") or len(instance_id) > _MAX_ID_LENGTH or _BAD_ID.search(instance_id):
            raise BadRequestError(
                f"The instance id {instance_id!r} is not allowed: use 1 to {_MAX_ID_LENGTH} characters, not starting "
                "with '@', without / \\ # ? and control characters."
            )
        existing = self._store.find_instance(instance_id)
        if existing is not None:
            if not existing.is_terminal:
                if not self._replaces_running:
                    status = existing.runtime_status
                    raise ConflictError(f"An Orchestration instance with the status {status} already exists.")
                self.terminate(instance_id, "replaced by a new instance of the same id")
            self._worker.evict(instance_id)
        new = NewInstance(instance_id, name, version, self._worker.new_id(), input_json)
        self._store.create_instance(new, self._worker.clock())
        self._worker.wake_instance(instance_id)
        return instance_id

    def find(self, instance_id: str) -> InstanceRecord:
        """Read an instance.

        Raises:
            InstanceNotFoundError: there is none.
        """
        record = self._store.find_instance(instance_id)
        if record is None:
            raise InstanceNotFoundError(f"No instance with ID '{instance_id}' was found.")
        return record

    async def find_committed(self, instance_id: str) -> InstanceRecord:
        """Read an instance after the episode that runs now, if it is committed soon.

        An orchestrator that tells somebody in its process of its end does so before the end is committed; the first
        look then finds it, and does not compete with the episode for the processor.

        Raises:
            InstanceNotFoundError: there is none.
        """
        await self._worker.wait_for_commit(instance_id, _COMMIT_WAIT_SECONDS)
        return self.find(instance_id)

    def read_history(self, record: InstanceRecord) -> list[str]:
        """Read the stored events of an instance, oldest first."""
        return self._store.read_history(record.key)

    def find_hang(self, instance_id: str) -> str | None:
        """Return why an instance does not go on, if its orchestrator waits for what the extension never starts."""
        return self._worker.find_hang(instance_id)

    async def wait_for_end(self, instance_id: str, timeout_seconds: float) -> InstanceRecord:
        """Wait for the end of an instance or the timeout; returns the instance."""
        record = self.find(instance_id)
        if not record.is_terminal:
            await self._worker.wait_for_end(instance_id, timeout_seconds)
        return self.find(instance_id)

    def raise_event(self, instance_id: str, name: str, input_json: str | None) -> None:
        """Send an external event, which is delivered at once.

        Raises:
            InstanceNotFoundError: there is no such instance.
            InstanceGoneError: it has ended.
        """
        record = self._find_live(instance_id)
        text = encode_event(EventRaised(name, input_json), self._worker.clock())
        self._store.add_arrival(record.key, text)
        self._worker.wake_instance(instance_id)

    def terminate(self, instance_id: str, reason: str) -> None:
        """End an instance now; its output is the reason.

        Raises:
            InstanceNotFoundError: there is no such instance.
            InstanceGoneError: it has ended.
        """
        record = self._find_live(instance_id)
        output = encode_text(reason)
        now = self._worker.clock()
        parent = record.parent
        reply = None if parent is None else (parent, encode_end(parent, "Terminated", output, now))
        self._store.end_instance(record.key, "Terminated", output, now, reply)
        self._worker.evict(instance_id)
        if parent is not None:
            self._worker.wake_instance(parent.instance_id)

    def set_suspended(self, instance_id: str, is_suspended: bool) -> None:
        """Suspend or resume an instance; arrivals wait while it is suspended.

        Raises:
            InstanceNotFoundError: there is no such instance.
            InstanceGoneError: it has ended.
            ConflictError: it is already in that state.
        """
        record = self._find_live(instance_id)
        if record.is_suspended == is_suspended:
            verb = "suspend" if is_suspended else "resume"
            raise ConflictError(
                f"Cannot {verb} the orchestration instance {instance_id} because instance is in the "
                f"{record.runtime_status} state."
            )
        self._store.set_suspended(record.key, is_suspended, self._worker.clock())
        self._worker.set_suspended(instance_id, is_suspended)

    def restart(self, instance_id: str, *, with_new_id: bool) -> str:
        """Restart the instance's orchestrator with the same input; returns the id.

        Raises:
            BadRequestError: there is no such instance.
            ConflictError: it keeps its id and has not ended.
        """
        record = self._store.find_instance(instance_id)
        if record is None:
            raise BadRequestError(f"An orchestrator with the instanceId {instance_id} was not found.")
        return self.start(record.name, None if with_new_id else instance_id, record.input_json, record.version)

    def purge(self, instance_id: str) -> None:
        """Delete an instance that has ended, or the state of an entity, which is an instance to the extension.

        Raises:
            InstanceNotFoundError: there is none.
            ConflictError: it has not ended.
        """
        if instance_id.startswith("@"):
            if not self._store.delete_entity(_entity_id(instance_id)):
                raise InstanceNotFoundError(f"No entity with ID '{instance_id}' was found.")
        else:
            record = self.find(instance_id)
            if not record.is_terminal:
                raise ConflictError(
                    f"Cannot purge the orchestration instance {record.instance_id} because instance is in the "
                    f"{record.runtime_status} state: terminate it first."
                )
            self._store.purge_instances([record.key])
            self._worker.evict(instance_id)
        self._store.erase()

    async def purge_all(self, instance_filter: InstanceFilter) -> int:
        """Delete all instances that have ended and that the filter matches; returns how many.

        are deleted.
        """
        count = 0
        batch = replace(instance_filter, limit=_PURGE_BATCH)
        while ended_instances := list_ended(self._store, batch):
            self._store.purge_instances(key for key, _ in ended_instances)
            for _, instance_id in ended_instances:
                self._worker.evict(instance_id)
            count += len(ended_instances)
            batch = replace(batch, after_key=ended_instances[-1][0])
            self._store.erase()
            await asyncio.sleep(0)
        return count

    def find_entity(self, name: str, key: str) -> EntityRecord | None:
        """Read an entity; None when it does not exist."""
        return self._store.find_entity(format_entity_id(name, key))

    def signal_entity(self, name: str, key: str, operation: str, input_json: str | None) -> None:
        """Send an operation to an entity, without an answer.

        Raises:
            BadRequestError: the app has no such entity function.
        """
        function_names = self._worker.functions.catalog.entities
        if name.lower() not in function_names:
            names = ", ".join(sorted(function_names)) or "none"
            raise BadRequestError(
                f"The function '{name}' doesn't exist, is disabled, or is not an entity function. "
                f"Additional info: the following are the known entity functions: {names}"
            )
        entity_id = format_entity_id(name, key)
        self._store.add_operation(entity_id, Operation(operation, input_json))
        self._worker.wake_entity(entity_id)

    def _find_live(self, instance_id: str) -> InstanceRecord:
        record = self.find(instance_id)
        if record.is_terminal:
            raise InstanceCompletedError(f"The instance '{instance_id}' has ended with status {record.status}.")
        return record


def _entity_id(text: str) -> str:
    try:
        return format_entity_id(*parse_entity_id(text))
    except ValueError as error:
        raise InstanceNotFoundError(f"No entity with ID '{text}' was found.") from error
