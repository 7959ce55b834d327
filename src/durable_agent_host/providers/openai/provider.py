"""OpenAI behind the port: clients of the Responses API, including Azure's and Foundry's."""

import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.model.conversation_file import ServedFile, ServiceFile
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.provider_item import STAMP, ItemPart, LostState
from durable_agent_host.model.repair_rules import RepairRules
from durable_agent_host.providers.adapted_client import create_adapter
from durable_agent_host.providers.cross_provider_history import ReplayTarget, rewrite_for
from durable_agent_host.providers.generic_provider import GenericProvider, remove_carriers
from durable_agent_host.providers.openai.approval_items import as_history
from durable_agent_host.providers.openai.client import ItemPreservingMixin, with_fast_event_parsing
from durable_agent_host.providers.openai.errors import HINTS, find_lost_state
from durable_agent_host.providers.openai.item_mapping import PROVIDER, complete_item, has_compaction
from durable_agent_host.providers.openai.item_types import ITEM_TYPES, repair_rules
from durable_agent_host.providers.openai.lost_state import mark_lost_items
from durable_agent_host.providers.openai.media_inputs import check_audio
from durable_agent_host.providers.openai.stream_events import read_item

# Loads what a process's first request to the Responses API needs, without network access.
#
# The SDK (openai 3.54) loads the API's module on first use, gets the platform's name with a separate process, and
# builds the parsers of stream events when the first ones arrive: the first turn would wait half a second for it. Here
# a client without connections reads the short response below.

_URL: Final = "http://warm-up.invalid/nothing-is-sent"
_RESPONSE: Final[dict[str, Any]] = {
    "id": "resp_0",
    "object": "response",
    "created_at": 0,
    "model": "none",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "status": "completed",
}
_USAGE: Final[dict[str, Any]] = {
    "input_tokens": 1,
    "input_tokens_details": {"cached_tokens": 0},  # a field fewer than the SDK requires, as several services send it
    "output_tokens": 1,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 2,
}
_PART: Final[dict[str, Any]] = {"type": "output_text", "text": "Yes.", "annotations": []}
_MESSAGE: Final[dict[str, Any]] = {
    "type": "message",
    "id": "msg_0",
    "role": "assistant",
    "status": "completed",
    "content": [_PART],
}
_IN_MESSAGE: Final = {"item_id": "msg_0", "output_index": 0, "content_index": 0}
_EVENTS: Final[tuple[dict[str, Any], ...]] = (
    {"type": "response.created", "response": _RESPONSE | {"status": "in_progress"}},
    {"type": "response.in_progress", "response": _RESPONSE | {"status": "in_progress"}},
    {"type": "response.output_item.added", "output_index": 0, "item": _MESSAGE | {"content": []}},
    {"type": "response.content_part.added", **_IN_MESSAGE, "part": _PART | {"text": ""}},
    {"type": "response.output_text.delta", **_IN_MESSAGE, "delta": "Yes.", "logprobs": []},
    {"type": "response.output_text.done", **_IN_MESSAGE, "text": "Yes.", "logprobs": []},
    {"type": "response.content_part.done", **_IN_MESSAGE, "part": _PART},
    {"type": "response.output_item.done", "output_index": 0, "item": _MESSAGE},
    {"type": "response.completed", "response": _RESPONSE | {"output": [_MESSAGE], "usage": _USAGE}},
)


async def warm_up() -> None:
    """Have an adapted client read a streamed response without a server.

    The client has none of the framework's layers, so nothing observes the call.
    """
    import anyio.lowlevel  # noqa: PLC0415 - the purpose of this function
    import httpx2  # noqa: PLC0415
    from agent_framework import Message  # noqa: PLC0415
    from agent_framework_openai import RawOpenAIChatClient  # noqa: PLC0415
    from openai import AsyncOpenAI  # noqa: PLC0415

    lines = [
        f"event: {event['type']}\ndata: {json.dumps(event | {'sequence_number': index})}\n\n"
        for index, event in enumerate(_EVENTS)
    ]

    def respond(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, text="".join(lines))

    await anyio.lowlevel.checkpoint()  # loads the connection code for this kind of loop
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(respond)) as http:
        sdk = AsyncOpenAI(api_key="none", base_url=_URL, http_client=http, max_retries=0)
        client: Any = RESPONSES.adapt(RawOpenAIChatClient(model="none", async_client=sdk))
        with _suppress_request_log():
            async for _ in client.get_response([Message("user", ["?"])], stream=True, options={"store": False}):
                pass


@contextmanager
def _suppress_request_log() -> Generator[None]:
    """Suppress the log line of this call; concurrent requests are logged."""
    log = logging.getLogger("httpx2")
    log.addFilter(_is_real)
    try:
        yield
    finally:
        log.removeFilter(_is_real)


def _is_real(record: logging.LogRecord) -> bool:
    return _URL not in record.getMessage()


_CONTAINER: Final = "container_id"

_VALID_ID: Final = re.compile(r"fc_[A-Za-z0-9_-]{1,61}")


def find_item_id(call: Content) -> str | None:
    """Return the item id of a function call, from its metadata or where this or an older client stored it.

    Returns:
        The id, or None when the history has lost it.
    """
    properties = call.additional_properties
    openai, metadata = (cast("Any", properties.get(name)) for name in ("openai", STAMP))
    for holder, name in ((metadata, "id"), (openai, "item_id"), (properties, "fc_id")):
        item_id: Any = cast("Mapping[str, Any]", holder).get(name) if isinstance(holder, Mapping) else None
        if isinstance(item_id, str) and item_id:
            return item_id
    return None


def identify_calls(messages: Iterable[Message], *, session_id: str) -> None:
    """Put item ids on the function calls of a rehydrated conversation, where every client looks for them.

    Older clients look up ``fc_id`` in a map by call id, the current one reads ``openai.item_id``.

    Guarantee: pure except for its argument; the ids derive from the session, the call and its position among the calls
    with that id, so they are the same on every replay, and differ when a call id recurs.

    Args:
        messages: freshly decoded, the conversation from its start; their contents are changed in place.
        session_id: of the conversation.
    """
    occurrence_counts: Counter[str] = Counter()
    contents = (content for message in messages for content in message.contents)
    for call in (content for content in contents if content.type == "function_call"):
        if not call.call_id or call.informational_only:
            continue
        occurrence_counts[call.call_id] += 1
        item_id = find_item_id(call)
        if item_id is None or not _VALID_ID.fullmatch(item_id):
            item_id = "fc_" + derived_id(session_id, call.call_id, str(occurrence_counts[call.call_id]))
        block: Any = call.additional_properties.get("openai")  # an imported document may have anything there
        fields: Mapping[str, Any] = cast("Mapping[str, Any]", block) if isinstance(block, Mapping) else {}
        call.additional_properties |= {"fc_id": item_id, "openai": {**fields, "item_id": item_id}}


_TARGET: Final = ReplayTarget(
    PROVIDER,
    unsent=frozenset(kind for row in ITEM_TYPES.values() for kind in row.unsent),
    media=re.compile(r"(image|audio|application|text)/.*"),
)


class OpenAIProvider(GenericProvider):
    """Clients that are not adapted, inside agents that are opaque to the host."""

    hints = HINTS

    @property
    def target(self) -> ReplayTarget:
        """Items are the provider's own."""
        return _TARGET

    def read_item(self, update: Any, /) -> ItemPart | None:
        """Return the item that an update belongs to."""
        return read_item(update)

    def complete_item(self, contents: list[Content], item: Mapping[str, Any] | None, /) -> list[Content]:
        """Make the contents of the item."""
        return complete_item(contents, item)

    def carry(
        self, messages: Sequence[Message], stored_losses: Mapping[str, Any], new_losses: Iterable[LostState], /
    ) -> tuple[list[Message], dict[str, Any]]:
        """Mark the items that the service has lost or cannot read."""
        return mark_lost_items(messages, stored_losses, new_losses)

    def service_files(self, content: Content, /) -> Iterable[ServiceFile]:
        """List hosted files, and the files of containers that a text cites."""
        yield from super().service_files(content)
        for annotation in content.annotations or ():
            fields = cast("dict[str, Any]", annotation)
            properties = cast("dict[str, Any]", fields.get("additional_properties") or {})
            container = properties.get(_CONTAINER)
            if fields.get("file_id") and container:
                name = str(fields.get("url") or fields.get("title") or "").rpartition("/")[2]
                yield ServiceFile(str(fields["file_id"]), name or None, location={_CONTAINER: str(container)})

    async def download_file(self, client: Any, file: ServiceFile, /) -> ServedFile:
        """Download it from its container, or by the Files API; its name is in the citation."""
        sdk = client.client
        if container := file.location.get(_CONTAINER):
            response = await sdk.containers.files.content.retrieve(file.file_id, container_id=container)
        else:
            response = await sdk.files.content(file.file_id)
        return ServedFile(response.content)

    def lost_state(self, error: BaseException, /) -> LostState | None:
        """Return the previous response, the container or the reasoning that the service has lost."""
        return find_lost_state(error)

    def finished_calls(self, update: Any, /) -> list[tuple[str, bool]]:
        """Return the id of the item that an update finishes, as the framework names hosted calls."""
        part = read_item(update)
        if part is None or part.item is None:
            return []
        item = part.item
        return [(str(item.get("id") or ""), item.get("status") == "failed" or bool(item.get("error")))]

    def replay(self, messages: Sequence[Message], /, *, session_id: str) -> list[Message]:
        """Give every call its item id, and remove carriers, which these clients do not send."""
        return remove_carriers(self._prepare_history(messages, session_id))

    def as_history(self, messages: Sequence[Message], /) -> list[Message]:
        """Carry completed approvals as items, which the framework does not change."""
        return as_history(messages)

    def _prepare_history(self, messages: Sequence[Message], session_id: str) -> list[Message]:
        history = as_history(rewrite_for(messages, self.target))
        identify_calls(history, session_id=session_id)
        return history


class ResponsesProvider(OpenAIProvider):
    """Clients of the Responses API, whose items are stored and sent back."""

    def adapt(self, client: Any, /) -> Any:
        """Copy the client so that it keeps the provider's items."""
        adapter = create_adapter(client, ItemPreservingMixin, self)
        if adapter is not client:
            fast_clients = {
                name: with_fast_event_parsing(value) for name, value in cast("dict[str, Any]", vars(adapter)).items()
            }
            adapter.__dict__.update(fast_clients)
        return adapter

    @property
    def repair_rules(self) -> RepairRules:
        """The requirements of the Responses API, from the rows of its items."""
        return repair_rules()

    def check_message(self, message: Message, /) -> None:
        """Reject audio that the API does not accept."""
        check_audio(message.contents)

    async def warm_up(self) -> None:
        """Read a short response without a server."""
        await warm_up()

    def final_response(self, event: Any, /) -> Any:
        """Return the response of the last event, which repeats everything streamed."""
        fields = cast("dict[str, Any]", event) if isinstance(event, dict) else {}
        return fields.get("response") if fields.get("type") in _FINAL_EVENTS else None

    def is_compaction_item(self, options: Mapping[str, Any], /) -> Callable[[Message], bool] | None:
        """Recognize the compaction items that the option ``context_management`` makes the service emit."""
        return has_compaction if options.get("context_management") else None

    def replay(self, messages: Sequence[Message], /, *, session_id: str) -> list[Message]:
        """Give every call its item id; carriers of items stay."""
        return self._prepare_history(messages, session_id)


_FINAL_EVENTS: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})

OPENAI: Final = OpenAIProvider()
RESPONSES: Final = ResponsesProvider()
