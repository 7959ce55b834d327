"""OpenAI behind the port: clients of the Responses API, including Azure's and Foundry's."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.agent.provider import ClientCall
from durable_agent_host.codec.strict_json import object_at, value_at
from durable_agent_host.model.conversation_file import ServedFile, ServiceFile
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.provider_item import STAMP, HostedCall, ItemPart, LostState
from durable_agent_host.providers.cross_provider_history import ReplayTarget, rewrite_for
from durable_agent_host.providers.event_normalization import normalize_streams
from durable_agent_host.providers.generic_provider import IMAGE_TYPES, GenericProvider, remove_carriers
from durable_agent_host.providers.lost_state import find_refusal
from durable_agent_host.providers.openai.client import (
    ItemPreservingMixin,
    NormalizedResponsesMixin,
    build_event_parsers,
    with_fast_event_parsing,
)
from durable_agent_host.providers.openai.client_calls import find_client_calls, read_client_call
from durable_agent_host.providers.openai.errors import find_lost_state
from durable_agent_host.providers.openai.item_mapping import PROVIDER, as_history, complete_item, read_item
from durable_agent_host.providers.openai.item_types import item_type
from durable_agent_host.providers.openai.media_inputs import check_audio
from durable_agent_host.providers.openai.request_items import LOSS_RULES

_CONTAINER: Final = "container_id"

_VALID_ID: Final = re.compile(r"fc_[A-Za-z0-9_-]{1,61}")


def find_item_id(call: Content) -> str | None:
    """Return the item id of a function call, from its metadata or where this or an older client stored it.

    Returns:
        The id, or None when the history has lost it.
    """
    properties = call.additional_properties
    for path in ((STAMP, "id"), ("openai", "item_id"), ("fc_id",)):
        item_id = value_at(properties, *path)
        if isinstance(item_id, str) and item_id:
            return item_id
    return None


def identify_calls(messages: Iterable[Message], *, session_id: str) -> None:
    """Put item ids on the function calls of a rehydrated conversation, where every client looks for them.

    Older clients look up ``fc_id`` in a map by call id, the current one reads ``openai.item_id``.

    Changes its argument. The ids derive from the session, the call and its position among the calls
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
        fields = object_at(call.additional_properties.get("openai"))  # an imported document may have anything there
        call.additional_properties |= {"fc_id": item_id, "openai": {**fields, "item_id": item_id}}


class OpenAIProvider(GenericProvider):
    """Clients that are not adapted, inside agents that are opaque to the host."""

    target = ReplayTarget(
        PROVIDER,
        media=re.compile(r"(image|audio|application|text)/.*"),
    )
    loss_rules = LOSS_RULES

    def read_item(self, update: Any, /) -> ItemPart | None:
        """Return the item that an update belongs to."""
        return read_item(update)

    def complete_item(self, contents: list[Content], item: Mapping[str, Any] | None, /) -> list[Content]:
        """Make the contents of the item."""
        return complete_item(contents, item)

    def lost_state(self, error: BaseException, /) -> LostState | None:
        """Return the previous response, the container or the reasoning that the service has lost."""
        return find_lost_state(error)

    def hosted_calls(self, item: Mapping[str, Any], /) -> Iterable[HostedCall]:
        """List the item's call of a tool of the service, which the service or the client runs."""
        read = item_type(item.get("type")).hosted_call
        call = (read(dict(item)) if read and item.get("type") else None) or read_client_call(dict(item))
        return () if call is None else (call,)

    def replay(self, messages: Sequence[Message], /, *, session_id: str) -> list[Message]:
        """Give every call its item id, and remove carriers unless the client sends them."""
        history = as_history(rewrite_for(messages, self.target))
        identify_calls(history, session_id=session_id)
        return remove_carriers(history) if self.overrides is None else history

    def as_history(self, messages: Sequence[Message], /) -> list[Message]:
        """Carry completed approvals as items, which the framework does not change."""
        return as_history(messages)


class ResponsesProvider(OpenAIProvider):
    """Clients of the Responses API, whose items are stored and sent back."""

    overrides = ItemPreservingMixin
    image_types = IMAGE_TYPES
    compaction_type = "compaction"

    def adapt(self, client: Any, /) -> Any:
        """Copy the client so that it keeps the provider's items, and reads what compatible services send otherwise."""
        adapter = super().adapt(client)
        if adapter is not client:
            fast_clients = {
                name: with_fast_event_parsing(value) for name, value in cast("dict[str, Any]", vars(adapter)).items()
            }
            adapter.__dict__.update(fast_clients)
        return normalize_streams(adapter, client, NormalizedResponsesMixin)

    async def cancel(self, client: Any, continuation: Mapping[str, Any], /) -> None:
        """Cancel the response that is generated in the background."""
        await client.client.responses.cancel(str(continuation["response_id"]))

    def lost_state(self, error: BaseException, /) -> LostState | None:
        """Return what the service has lost, or refuses of the request."""
        return super().lost_state(error) or find_refusal(error)

    def service_files(self, content: Content, /) -> Iterable[ServiceFile]:
        """List hosted files, and the files of containers that a text cites."""
        yield from super().service_files(content)
        for annotation in content.annotations or ():
            fields = cast("dict[str, Any]", annotation)
            properties = object_at(fields, "additional_properties")
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

    def client_calls(self, messages: Sequence[Message], /) -> Sequence[ClientCall]:
        """List the calls of custom tools, shells, patches and computers."""
        return find_client_calls(messages)

    def check_message(self, message: Message, /) -> None:
        """Reject images and audio that the API does not accept."""
        super().check_message(message)
        check_audio(message.contents)

    async def warm_up(self) -> None:
        """Load the API's module, the platform's name, and the parsers of stream events, without a connection.

        The SDK (openai 3.54) does so in its first call, which takes half a second.
        """
        import anyio.lowlevel  # noqa: PLC0415 - the purpose of this function
        import openai

        import_module("openai.resources.responses")
        await anyio.lowlevel.checkpoint()  # loads the connection code for this kind of loop
        async with openai.AsyncOpenAI(api_key="none") as sdk:
            sdk.platform_headers()
        build_event_parsers()


OPENAI: Final = OpenAIProvider()
RESPONSES: Final = ResponsesProvider()
