"""The exact shapes of stored data, in one place.

The outer shape is upstream's (``agent_framework_durabletask`` 1.0.0b260922, ``durable-agent-entity-state.json`` 1.1),
so that its tools read our sessions. Data for which upstream has no field is under ``extensionData``, in our own object
with the key `EXTENSION`.
"""

from typing import Any, NotRequired, TypedDict

EXTENSION = "durableAgentHost"
"""Our object's key in every ``extensionData``."""

ContentWire = TypedDict(
    "ContentWire", {"$type": str, "extensionData": NotRequired[dict[str, Any]], "content": NotRequired[dict[str, Any]]}
)
"""One content. The further keys depend on ``$type``: see `durable_agent_host.codec.content`."""


class MessageWire(TypedDict):
    """One message of an entry."""

    role: str
    contents: list[ContentWire]
    authorName: NotRequired[str]
    createdAt: NotRequired[str]
    extensionData: NotRequired[dict[str, Any]]


class UsageWire(TypedDict, total=False):
    """Token counts of a response."""

    inputTokenCount: int | None
    outputTokenCount: int | None
    totalTokenCount: int | None
    extensionData: dict[str, Any]


EntryWire = TypedDict(
    "EntryWire",
    {
        "$type": str,
        "correlationId": str | None,
        "createdAt": str,
        "messages": list[MessageWire],
        "responseType": NotRequired[str],
        "responseSchema": NotRequired[dict[str, Any]],
        "orchestrationId": NotRequired[str],
        "usage": NotRequired[UsageWire],
        "extensionData": NotRequired[dict[str, Any]],
    },
)
"""A request or a response of the conversation."""


class SpentWire(TypedDict):
    """What was spent, in the units of the app's budgets; the cost is absent without prices."""

    tokens: float
    cost: NotRequired[float]
    model_calls: float
    tool_calls: float
    seconds: float


class StatsWire(TypedDict):
    """Sizes and times of a turn's output; `calls_refused` is absent when it is zero."""

    chunks_streamed: float
    bytes_streamed: float
    contents_stored: float
    bytes_stored: float
    agent_milliseconds: float
    calls_refused: NotRequired[float]
