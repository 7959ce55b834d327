"""Reads turns from the status of their orchestrations, as the SDK returns it."""

import json
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, cast
from urllib.parse import quote

import aiohttp
from azure.durable_functions import DurableOrchestrationClient, OrchestrationRuntimeStatus

from durable_agent_host.durable.task_hub import UnreadableValue
from durable_agent_host.durable.turn_orchestrator import TURN_ORCHESTRATION
from durable_agent_host.errors import CorruptStateError, RequestError
from durable_agent_host.model.ids import can_be_instance
from durable_agent_host.model.turn import Turn, TurnOutcome, TurnRequest
from durable_agent_host.turn.error_texts import failure_reason
from durable_agent_host.turn.turn_requests import read_turn_request
from durable_agent_host.turn.turn_wire import decode_turn_outcome
from durable_agent_host.turn.waiting_status import TurnWaitState, decode_pending

END_STATUSES: Final = frozenset(
    {
        OrchestrationRuntimeStatus.Completed,
        OrchestrationRuntimeStatus.Failed,
        OrchestrationRuntimeStatus.Terminated,
        OrchestrationRuntimeStatus.Canceled,
    }
)
"""The statuses of an orchestration that no longer runs."""


async def status_of_turn(client: DurableOrchestrationClient, turn_id: str, *, show_input: bool = False) -> Any:
    """Read the status of a turn's orchestration.

    Returns:
        The status, which is false when there is no such orchestration; None for an invalid id.
    """
    if not can_be_instance(turn_id):
        return None
    return await client.get_status(turn_id, show_input=show_input)


async def read_turn(client: DurableOrchestrationClient, turn_id: str) -> Turn | None:
    """Read a turn from its orchestration; see `turn_of_status`."""
    status = await status_of_turn(client, turn_id, show_input=True)
    return turn_of_status(turn_id, status) if status else None


async def has_ended(client: DurableOrchestrationClient, turn_id: str) -> bool:
    """Return whether a turn's orchestration has ended, or never was."""
    status = await status_of_turn(client, turn_id)
    return not status or status.runtime_status in (*END_STATUSES, None)


def turn_of_status(turn_id: str, status: Any) -> Turn | None:
    """Read a turn from the status of its orchestration.

    Returns:
        The turn, or None when the orchestration is not a turn, or was not started as one.

    Raises:
        CorruptStateError: how it ended, or what it waits for, is damaged.
    """
    request = request_of_status(turn_id, status)
    if request is None:
        return None
    outcome = _outcome(request, status)
    try:
        pending, replies, postponement = _read(turn_id, status.custom_status, _decode_wait)
    except CorruptStateError:
        if outcome is None:
            raise
        pending, replies, postponement = decode_pending(None)
    if outcome is not None:
        pending, postponement = (), None
    return Turn(request=request, outcome=outcome, pending=pending, replies=replies, postponement=postponement)


def request_of_status(turn_id: str, status: Any) -> TurnRequest | None:
    """Read an orchestration's request; anybody can have started it, with anything."""
    if (status.name or "").casefold() != TURN_ORCHESTRATION:
        return None
    try:
        payload = _parse_json(status.input_)
        created_at = str(status.created_time or "")
        return read_turn_request(payload, instance_id=turn_id, created_at=created_at)
    except (ValueError, RecursionError, RequestError):
        return None


def _read[T](turn_id: str, value: Any, decode: Callable[[Any], T]) -> T:
    """Read a value that only this host writes."""
    try:
        return decode(_parse_json(value))
    except (CorruptStateError, RequestError, ValueError, RecursionError) as error:
        raise CorruptStateError(
            f"what the task hub stores of the turn {turn_id} is damaged, and cannot be read: restore a copy, or delete "
            "its session; nothing was changed"
        ) from error


def _parse_json(value: Any) -> Any:
    if isinstance(value, UnreadableValue):
        raise value.error
    return json.loads(value) if isinstance(value, str) else value


def _outcome(request: TurnRequest, status: Any) -> TurnOutcome | None:
    match status.runtime_status:
        case OrchestrationRuntimeStatus.Completed:
            return _read(request.turn_id, status.output, decode_turn_outcome)
        case OrchestrationRuntimeStatus.Failed | OrchestrationRuntimeStatus.Canceled:
            reason = failure_reason(str(status.output))
            error = {"type": "TurnError", "message": f"the turn's orchestration failed: {reason}"}
            return TurnOutcome(request.turn_id, "failed", error=error)
        case OrchestrationRuntimeStatus.Terminated:
            error = {"type": "TurnError", "message": f"the turn was terminated: {status.output}"[:600]}
            return TurnOutcome(request.turn_id, "failed", error=error)
        case _:
            return None


def _decode_wait(wire: Any) -> TurnWaitState:
    match wire:
        case None | {"pending": list(), "answers": dict()}:
            return decode_pending(wire)
        case _:
            raise ValueError("what the turn waits for")


# Lists of entities and orchestrations, a page at a time.
#
# Verified on the embedded host: everything here. From the documentation of the Durable Functions HTTP API ("List
# entities", "Get all instances status", extension 2.x): the host answers ``GET entities/{name}`` with ``top`` and
# ``lastOperationTimeTo``, and ``GET instances`` with ``top``, ``createdTimeFrom``, ``createdTimeTo`` and
# ``runtimeStatus``; pages of either with the header ``x-ms-continuation-token``, in no promised order. The SDK pages
# neither, so the URLs are those of its own calls.

_BEGINNING: Final = "2020-01-01T00:00:00.000000Z"
_ENTITIES: Final = 1000
"""Entities per page of a list."""
_INSTANCES: Final = 200
"""Instances per page of a list."""
_TOKEN: Final = "x-ms-continuation-token"  # noqa: S105 - a header's name
_LAST_TOKENS: Final = ("", "bnVsbA==")
"""The extension's token on the last page: null, encoded in base64."""


class SessionListItem(NamedTuple):
    """A session in a list.

    Attributes:
        last_used_at: when its entity last ran an operation; UTC, ISO-8601, whole seconds on some hosts.
        session_id: without the agent's name.
    """

    last_used_at: str
    session_id: str


class InstanceListItem(NamedTuple):
    """An orchestration in a list.

    Attributes:
        instance_id: its id.
        name: of the orchestrator function.
        updated_at: when it last changed, or None where the host does not report it.
    """

    instance_id: str
    name: str
    updated_at: datetime | None


async def entity_pages(
    client: DurableOrchestrationClient, name: str, *, used_before: datetime | None = None
) -> AsyncIterator[list[SessionListItem]]:
    """List the entities with a name.

    Yields:
        Pages, in no promised order.
    """
    params = {"fetchState": "false", "top": str(_ENTITIES)}
    if used_before is not None:
        params["lastOperationTimeTo"] = _wire_time(used_before)
    async for page, _ in _pages(client, f"entities/{quote(name.lower())}", params):
        yield [SessionListItem(str(item.get("lastOperationTime") or ""), item["entityId"]["key"]) for item in page]


async def ended_instance_pages(
    client: DurableOrchestrationClient, *, created_to: datetime, token: str
) -> AsyncIterator[tuple[list[InstanceListItem], str]]:
    """List orchestrations that have ended.

    Yields:
        A page, and the token of the next one; an empty token at the end.
    """
    params = {
        "createdTimeFrom": _BEGINNING,
        "createdTimeTo": _wire_time(created_to),
        "runtimeStatus": ",".join(status.value for status in END_STATUSES),
        "showInput": "false",
        "top": str(_INSTANCES),
    }
    async for page, following in _pages(client, "instances", params, token):
        yield [_instance(item) for item in page], following


async def waiting_instances(
    client: DurableOrchestrationClient, names: Collection[str], token: str
) -> tuple[list[tuple[str, str]], str]:
    """List running orchestrations with certain names that show what they wait for, a page at a time.

    Returns:
        Their names, in lower case, and ids, and the token of the next page; an empty token at the end.
    """
    params = {"runtimeStatus": "Running", "showInput": "false", "top": str(_INSTANCES)}
    async for page, following in _pages(client, "instances", params, token):
        found = [
            (str(item.get("name")).casefold(), str(item.get("instanceId"))) for item in page if item.get("customStatus")
        ]
        return [(name, instance_id) for name, instance_id in found if name in names], following
    return [], ""


async def _pages(
    client: DurableOrchestrationClient, path: str, params: Mapping[str, str], token: str = ""
) -> AsyncIterator[tuple[list[dict[str, Any]], str]]:
    base: str = cast("Any", client)._orchestration_bindings.rpc_base_url  # noqa: SLF001 - see the module
    url = f"{base.rstrip('/')}/{path}"
    async with aiohttp.ClientSession() as http:
        while True:
            async with http.get(url, params=params, headers={_TOKEN: token} if token else {}) as answer:
                answer.raise_for_status()
                page = cast("list[dict[str, Any]]", await answer.json(content_type=None))
                token = answer.headers.get(_TOKEN, "")
            token = "" if token in _LAST_TOKENS else token
            yield page, token
            if not token:
                return


def _instance(item: Mapping[str, Any]) -> InstanceListItem:
    return InstanceListItem(
        str(item.get("instanceId") or ""),
        str(item.get("name") or ""),
        read_time(str(item.get("lastUpdatedTime") or "")),
    )


def read_time(text: str) -> datetime | None:
    """Parse a time from the host.

    Returns:
        The time, or None when it is not one.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _wire_time(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
