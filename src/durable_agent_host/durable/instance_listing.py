"""Lists of entities and orchestrations, a page at a time.

Verified on the embedded host: everything here. From the documentation of the Durable Functions HTTP API ("List
entities", "Get all instances status", extension 2.x): the host answers ``GET entities/{name}`` with ``top`` and
``lastOperationTimeTo``, and ``GET instances`` with ``top``, ``createdTimeFrom``, ``createdTimeTo`` and
``runtimeStatus``; pages of either with the header ``x-ms-continuation-token``, in no promised order. The SDK pages
neither, so the URLs are those of its own calls.
"""

from collections.abc import AsyncIterator, Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, cast
from urllib.parse import quote

import aiohttp
from azure.durable_functions import DurableOrchestrationClient

from durable_agent_host.durable.instance_status import END_STATUSES

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
    client: DurableOrchestrationClient, *, created_from: datetime, created_to: datetime, token: str = ""
) -> AsyncIterator[tuple[list[InstanceListItem], str]]:
    """List orchestrations that have ended.

    Yields:
        A page, and the token of the next one; an empty token at the end.
    """
    params = {
        "createdTimeFrom": _wire_time(created_from),
        "createdTimeTo": _wire_time(created_to),
        "runtimeStatus": ",".join(status.value for status in END_STATUSES),
        "showInput": "false",
        "top": str(_INSTANCES),
    }
    async for page, following in _pages(client, "instances", params, token):
        yield [_instance(item) for item in page], following


async def waiting_instances(
    client: DurableOrchestrationClient, names: Collection[str], token: str = ""
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
