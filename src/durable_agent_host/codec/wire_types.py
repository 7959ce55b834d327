"""The exact shapes of stored data, in one place.

The outer shape is upstream's (``agent_framework_durabletask`` 1.0.0b260922, ``durable-agent-entity-state.json`` 1.1),
so that its tools read our sessions. Data for which upstream has no field is under ``extensionData``, in our own object
with the key `EXTENSION`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, NotRequired, TypedDict

from pydantic import ValidatorFunctionWrapHandler, WrapValidator

from durable_agent_host.codec.content_fields import KNOWN_TYPES
from durable_agent_host.codec.strict_json import value_at
from durable_agent_host.model.turn import TurnStatus

EXTENSION: Final = "durableAgentHost"
"""Our object's key in every ``extensionData``."""

ObjectWire = dict[str, Any]
ScalarWire = str | float | bool | None

REQUEST: Final = "request"
RESPONSE: Final = "response"

MAPPED: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "text": ("text", {"text": "text"}),
    "text_reasoning": ("reasoning", {"text": "text"}),
    "data": ("data", {"uri": "uri", "media_type": "mediaType"}),
    "uri": ("uri", {"uri": "uri", "media_type": "mediaType"}),
    "error": ("error", {"message": "message", "error_code": "errorCode", "error_details": "details"}),
    "function_result": ("functionResult", {"call_id": "callId", "result": "result"}),
    "hosted_file": ("hostedFile", {"file_id": "fileId"}),
    "hosted_vector_store": ("hostedVectorStore", {"vector_store_id": "vectorStoreId"}),
}
"""Type of content → its ``$type``, and the fields for which upstream has a name."""


def wire_type_of(content_type: str) -> str:
    """Return the ``$type`` of a type of content."""
    head, *tail = content_type.split("_")
    return MAPPED[content_type][0] if content_type in MAPPED else head + "".join(word.capitalize() for word in tail)


_KNOWN_TYPES: Final = frozenset({REQUEST, RESPONSE, *map(wire_type_of, KNOWN_TYPES)})


def _check_known_types(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """Check an object, unless its ``$type`` is not known to this version."""
    wire_type = value_at(value, "$type")
    return check(value) if not isinstance(wire_type, str) or wire_type in _KNOWN_TYPES else value


_KNOWN_ONLY: Final = WrapValidator(_check_known_types)


class ItemStampWire(TypedDict, total=False):
    """The service's item that begins with a content."""

    provider: str | None
    type: str | None
    id: str | None
    item: ObjectWire | None


PropertiesWire = TypedDict("PropertiesWire", {"durable_agent_host.item": NotRequired[ItemStampWire]})
"""The further properties of a content."""


class ContentFieldsWire(TypedDict, total=False):
    """The fields of the framework's contents, by name."""

    text: str | None
    protected_data: str | None
    uri: str | None
    media_type: str | None
    message: str | None
    call_id: str | None
    name: str | None
    exception: str | None
    file_id: str | None
    vector_store_id: str | None
    id: str | None
    error_code: ScalarWire
    error_details: ScalarWire
    image_id: ScalarWire
    status: ScalarWire
    stdout: ScalarWire
    stderr: ScalarWire
    tool_name: ScalarWire
    server_name: ScalarWire
    consent_link: ScalarWire
    merge_mode: ScalarWire
    timeout_ms: ScalarWire
    max_output_length: ScalarWire
    exit_code: ScalarWire
    informational_only: bool | None
    timed_out: bool | None
    hosted: bool | None
    user_input_request: bool | None
    approved: bool | None
    arguments: str | ObjectWire | None
    commands: list[Any] | None
    items: list[ObjectWire] | None
    inputs: list[ObjectWire] | None
    annotations: list[ObjectWire] | None
    actions: list[ObjectWire] | None
    pending_safety_checks: list[ObjectWire] | None
    acknowledged_safety_checks: list[ObjectWire] | None
    usage_details: ObjectWire | None
    screenshot: ObjectWire | None
    function_call: ObjectWire | None
    additional_properties: PropertiesWire | None
    result: Any
    output: Any
    outputs: Any


class ContentExtensionWire(ContentFieldsWire, total=False):
    """The fields of a content for which upstream has no name."""

    argumentsForm: str | None
    argumentsText: str | None


class ContentExtensionsWire(TypedDict, total=False):
    """The ``extensionData`` of a content."""

    durableAgentHost: ContentExtensionWire


class UsageWire(TypedDict, total=False):
    """Token counts of a response."""

    inputTokenCount: float | None
    outputTokenCount: float | None
    totalTokenCount: float | None
    extensionData: ObjectWire | None


ContentWire = TypedDict(
    "ContentWire",
    {
        "$type": str,
        "text": NotRequired[str | None],
        "uri": NotRequired[str | None],
        "mediaType": NotRequired[str | None],
        "message": NotRequired[str | None],
        "errorCode": NotRequired[ScalarWire],
        "details": NotRequired[ScalarWire],
        "callId": NotRequired[str | None],
        "name": NotRequired[str | None],
        "arguments": NotRequired[str | ObjectWire | None],
        "result": NotRequired[Any],
        "fileId": NotRequired[str | None],
        "vectorStoreId": NotRequired[str | None],
        "usage": NotRequired[UsageWire | None],
        "content": NotRequired[ContentFieldsWire],
        "extensionData": NotRequired[ContentExtensionsWire | None],
    },
)
"""One content. Its fields depend on ``$type``: see `durable_agent_host.codec.content`."""


class MessageExtensionWire(TypedDict, total=False):
    """The fields of a message for which upstream has no name."""

    messageId: str | None
    additionalProperties: ObjectWire | None


class MessageExtensionsWire(TypedDict, total=False):
    """The ``extensionData`` of a message."""

    durableAgentHost: MessageExtensionWire


class MessageWire(TypedDict):
    """One message of an entry."""

    role: str
    contents: list[Annotated[ContentWire, _KNOWN_ONLY]]
    authorName: NotRequired[str | None]
    createdAt: NotRequired[str | None]
    extensionData: NotRequired[MessageExtensionsWire | None]


class EntryExtensionWire(TypedDict, total=False):
    """The fields of an entry for which upstream has no name."""

    additionalProperties: ObjectWire | None
    options: ObjectWire
    responseId: str | None
    agentId: str | None
    finishReason: str | None


class EntryExtensionsWire(TypedDict, total=False):
    """The ``extensionData`` of an entry."""

    durableAgentHost: EntryExtensionWire


EntryWire = TypedDict(
    "EntryWire",
    {
        "$type": str,
        "correlationId": NotRequired[str | None],
        "createdAt": NotRequired[str | None],
        "messages": NotRequired[list[MessageWire] | None],
        "responseType": NotRequired[str | None],
        "responseSchema": NotRequired[ObjectWire | None],
        "orchestrationId": NotRequired[str | None],
        "usage": NotRequired[UsageWire | None],
        "extensionData": NotRequired[EntryExtensionsWire | None],
    },
)
"""A request or a response of the conversation."""


class OwnerWire(TypedDict):
    """The owner of a session."""

    principal: str
    tenant: NotRequired[str]


class AgentSessionWire(TypedDict):
    """The framework's session."""

    session_id: str
    service_session_id: NotRequired[str | ObjectWire | None]
    state: NotRequired[ObjectWire | None]


class FailureWire(TypedDict):
    """The error that ended a turn."""

    type: str
    message: str
    category: NotRequired[str]
    retryable: NotRequired[bool]
    retry_after_seconds: NotRequired[float | None]
    running_turn_id: NotRequired[str | None]


class ReceiptWire(TypedDict):
    """How a turn of the session ended."""

    turnId: str
    status: NotRequired[TurnStatus]
    endedAt: NotRequired[str]
    requestHash: NotRequired[str]
    error: NotRequired[FailureWire | None]
    stats: NotRequired[list[float] | None]
    spent: NotRequired[list[float | None] | None]
    joinedTurnId: NotRequired[str]


class SpentWire(TypedDict):
    """What was spent, in the units of the app's budgets; the cost is absent without prices."""

    tokens: float
    cost: NotRequired[float]
    model_calls: float
    tool_calls: float
    seconds: float


class StatsWire(TypedDict):
    """Sizes and times of a turn's output."""

    chunks_streamed: float
    bytes_streamed: float
    contents_stored: float
    bytes_stored: float
    agent_milliseconds: float
    calls_refused: float


class SessionFieldsWire(TypedDict, total=False):
    """The fields of a session for which upstream has no name, but for its receipts."""

    agentSession: AgentSessionWire | None
    owner: OwnerWire | None
    running: str | None
    queue: list[str] | None
    interrupting: str | None
    refused: list[str] | None
    erasing: str | None
    usedAt: str | None
    requests: dict[str, ObjectWire] | None
    spent: dict[str, float] | None
    appState: ObjectWire | None


class SessionExtensionWire(SessionFieldsWire, total=False):
    """The fields of a session for which upstream has no name."""

    receipts: list[ReceiptWire] | None


class SessionExtensionsWire(TypedDict, total=False):
    """The ``extensionData`` of a session."""

    durableAgentHost: SessionExtensionWire | None


class SessionDataWire(TypedDict):
    """A session within its document."""

    conversationHistory: list[Annotated[EntryWire, _KNOWN_ONLY]]
    extensionData: NotRequired[SessionExtensionsWire | None]


class SessionDocumentWire(TypedDict):
    """The document of a session."""

    schemaVersion: str
    data: SessionDataWire
