"""OpenAI behind the port: clients of the Responses API, including Azure's and Foundry's."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from agent_framework import Message

from durable_agent_host.model.repair_rules import RepairRules
from durable_agent_host.providers.foreign import ReplayTarget, rewrite_for
from durable_agent_host.providers.hosted_provider import ProviderBase, ProviderHooks
from durable_agent_host.providers.neutral import remove_carriers
from durable_agent_host.providers.openai.approvals import as_history
from durable_agent_host.providers.openai.call_ids import identify_calls
from durable_agent_host.providers.openai.client import adapt_client
from durable_agent_host.providers.openai.errors import explain_error, find_lost_state
from durable_agent_host.providers.openai.first_call import warm_up
from durable_agent_host.providers.openai.forgotten import mark_lost_items
from durable_agent_host.providers.openai.item_types import ITEM_TYPES, repair_rules
from durable_agent_host.providers.openai.items import PROVIDER, has_compaction
from durable_agent_host.providers.openai.media import check_audio
from durable_agent_host.providers.openai.service_files import cited_files, read_file
from durable_agent_host.providers.openai.stream_events import ResponsesItemReader, read_item


class OpenAIProvider(ResponsesItemReader, ProviderBase):
    """Clients that are not adapted, inside agents that are opaque to the host."""

    hooks = ProviderHooks(
        target=ReplayTarget(
            PROVIDER,
            unsent=frozenset(kind for row in ITEM_TYPES.values() for kind in row.unsent),
            media=re.compile(r"(image|audio|application|text)/.*"),
        ),
        carry=mark_lost_items,
        lost_state=find_lost_state,
        explain=explain_error,
        generated_files=cited_files,
        read_file=read_file,
    )

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

    hooks = replace(OpenAIProvider.hooks, adapt=adapt_client)

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

    def sums_up(self, options: Mapping[str, Any], /) -> Callable[[Message], bool] | None:
        """Recognize the compaction items that the option ``context_management`` makes the service emit."""
        return has_compaction if options.get("context_management") else None

    def replay(self, messages: Sequence[Message], /, *, session_id: str) -> list[Message]:
        """Give every call its item id; carriers of items stay."""
        return self._prepare_history(messages, session_id)


_FINAL_EVENTS: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})

OPENAI: Final = OpenAIProvider()
RESPONSES: Final = ResponsesProvider()
