"""OpenAI behind the port: clients of the Responses API, Azure's and Foundry's among them."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from agent_framework import Content, Message

from durable_agent_host.errors import ProviderError
from durable_agent_host.model.conversation_file import ServedFile, ServiceFile
from durable_agent_host.model.provider_item import Forgotten
from durable_agent_host.model.repair_rules import RepairRules
from durable_agent_host.providers.foreign import Target, retold
from durable_agent_host.providers.neutral import NeutralProvider, without_carriers
from durable_agent_host.providers.openai.approvals import as_history
from durable_agent_host.providers.openai.call_ids import identify_calls
from durable_agent_host.providers.openai.client import adapt_client
from durable_agent_host.providers.openai.errors import explain_error, forgotten_by_service
from durable_agent_host.providers.openai.first_call import warm_up
from durable_agent_host.providers.openai.forgotten import without_forgotten
from durable_agent_host.providers.openai.item_types import ITEM_TYPES, repair_rules
from durable_agent_host.providers.openai.items import PROVIDER, has_compaction
from durable_agent_host.providers.openai.media import check_audio
from durable_agent_host.providers.openai.service_files import cited_files, read_file
from durable_agent_host.providers.openai.stream_events import ItemsOfResponses, read_item

_TARGET: Final = Target(
    PROVIDER,
    unsent=frozenset(kind for row in ITEM_TYPES.values() for kind in row.unsent),
    media=re.compile(r"(image|audio|application|text)/.*"),
)


class OpenAIProvider(ItemsOfResponses, NeutralProvider):
    """Clients that are not adapted, inside of agents that the host does not see into."""

    @property
    def target(self) -> Target:
        """Items of the API are the provider's own."""
        return _TARGET

    def finished_calls(self, update: Any, /) -> list[tuple[str, bool]]:
        """Name the item that an update finishes by its id, as the framework names hosted calls."""
        part = read_item(update)
        if part is None or part.item is None:
            return []
        item = part.item
        return [(str(item.get("id") or ""), item.get("status") == "failed" or bool(item.get("error")))]

    def replay(self, messages: Sequence[Message], /, *, session_id: str) -> list[Message]:
        """Give every call its item id, and leave out what these clients do not send."""
        return without_carriers(self._whole(messages, session_id))

    def as_history(self, messages: Sequence[Message], /) -> list[Message]:
        """Carry answered approvals as items, which the framework leaves alone."""
        return as_history(messages)

    def carry(
        self, messages: Sequence[Message], remembered: Mapping[str, Any], lost: Iterable[Forgotten], /
    ) -> tuple[list[Message], dict[str, Any]]:
        """Remember expired containers and unreadable reasoning."""
        return without_forgotten(messages, remembered, lost)

    def service_files(self, content: Content, /) -> Iterable[ServiceFile]:
        """List hosted files, and the files of containers that a text cites."""
        yield from super().service_files(content)
        yield from cited_files(content)

    async def read_service_file(self, client: Any, file: ServiceFile, /) -> ServedFile:
        """Download it from its container, or from the Files API."""
        return await read_file(client, file)

    def forgotten(self, error: BaseException, /) -> Forgotten | None:
        """Read it from the service's own words."""
        return forgotten_by_service(error)

    def explain(self, error: BaseException, /) -> ProviderError | None:
        """Name the setting of OpenAI or Azure OpenAI that may be wrong."""
        return explain_error(error)

    def _whole(self, messages: Sequence[Message], session_id: str) -> list[Message]:
        history = as_history(retold(messages, self.target))
        identify_calls(history, session_id=session_id)
        return history


class ResponsesProvider(OpenAIProvider):
    """Clients of the Responses API, whose items are kept and sent back."""

    @property
    def repair_rules(self) -> RepairRules:
        """What the Responses API requires, from the rows of its items."""
        return repair_rules()

    def check_message(self, message: Message, /) -> None:
        """Refuse audio that the API does not take."""
        check_audio(message.contents)

    def adapt(self, client: Any, /) -> Any:
        """Copy the client with overrides that keep its items."""
        return adapt_client(client)

    async def warm_up(self) -> None:
        """Read a short answer that comes from no server."""
        await warm_up()

    def sums_up(self, options: Mapping[str, Any], /) -> Callable[[Message], bool] | None:
        """Know the compaction items that the option ``context_management`` makes the service emit."""
        return has_compaction if options.get("context_management") else None

    def replay(self, messages: Sequence[Message], /, *, session_id: str) -> list[Message]:
        """Give every call its item id; carriers of items stay."""
        return self._whole(messages, session_id)


OPENAI: Final = OpenAIProvider()
RESPONSES: Final = ResponsesProvider()
