"""The clients that an agent falls back to when its own service does not answer, and which of them a turn uses now."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from agent_framework import (
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    FunctionTool,
    Message,
)

from durable_agent_host.agent.hosted_agent import CONVERSATION_OPTIONS
from durable_agent_host.agent.model_call import ModelCall
from durable_agent_host.agent.provider import ModelProvider, ProviderFor
from durable_agent_host.model.conversation_file import ServiceFile
from durable_agent_host.model.journal_entry import FeatureEntry
from durable_agent_host.model.provider_item import HostedCall, ItemPart
from durable_agent_host.turn.step_types import FeatureView

NAME: Final = "fallback"
"""The entries of switches: since which model call another client answers.

Their data: ``client`` and ``failed``, the indexes of the client that answers and of the one whose service does not (0
is the agent's own, then its fallbacks), the ``name`` of the class that answers, and the ``reason``, a sentence.
"""
_CONVERSATION_OPTIONS: Final = CONVERSATION_OPTIONS | {"continuation_token"}
_COMMON_OPTIONS: Final = frozenset(
    {"temperature", "top_p", "max_tokens", "stop", "instructions", "response_format"}
    | {"tools", "tool_choice", "allow_multiple_tool_calls"}
)
"""Options that mean the same to the clients of all services."""


def show_switch(entry: FeatureEntry) -> FeatureView:
    """Show a switch, and the client with the model calls that follow."""
    name = entry.data["name"]
    step = {"kind": "fallback", "client": name, "reason": entry.data["reason"]}
    return FeatureView(step, {"client": name if entry.data["client"] else None})


@dataclass(frozen=True)
class AnsweringClient:
    """A client that can answer an agent's model calls.

    Attributes:
        client: the hosted copy.
        provider: of the client.
    """

    client: Any
    provider: ModelProvider

    @property
    def name(self) -> str:
        """The client's class, as shown to people."""
        return type(self.client).__name__


def host_fallbacks(clients: Sequence[Any], provider_for: ProviderFor) -> list[AnsweringClient]:
    """Copy the fallbacks of an agent so that they keep their providers' items, and are guarded."""
    hosted_clients: list[AnsweringClient] = []
    for client in clients:
        provider = provider_for(client)
        hosted_client = copy.copy(provider.adapt(client))
        hosted_client.__dict__.update(provider.sdk_clients(hosted_client))
        hosted_clients.append(AnsweringClient(hosted_client, provider))
    return hosted_clients


@dataclass
class ActiveClient:
    """Which client answers the calls of one run of a turn's agent. Reads the updates of that client.

    Attributes:
        clients: the agent's own, then its fallbacks.
        switches: of the turn so far.
    """

    clients: Sequence[AnsweringClient]
    switches: list[FeatureEntry]

    @property
    def index(self) -> int:
        """The index of the client; the agent's own when the app no longer has the other one."""
        index = self.switches[-1].data["client"] if self.switches else 0
        return index if index < len(self.clients) else 0

    @property
    def has_switched(self) -> bool:
        """Whether another client than the agent's own has answered, or will."""
        return bool(self.switches)

    def make_call(self, call: ModelCall, session_id: str) -> ModelCall:
        """Return a call of the agent for the client that answers it."""
        if not self.has_switched:
            return call
        answering = self.clients[self.index]
        messages = answering.provider.replay([*map(_copy_message, call.messages)], session_id=session_id)
        if self.index == 0:
            options = {name: value for name, value in call.options.items() if name not in _CONVERSATION_OPTIONS}
            return ModelCall(call.path, call.client, call.provider, messages, options, call.send)
        options = _options_for(answering.provider, call)
        return ModelCall(call.path, answering.client, answering.provider, messages, options, _send_by(answering.client))

    @property
    def provider(self) -> ModelProvider:
        return self.clients[self.index].provider

    def read_item(self, update: Any, /) -> ItemPart | None:
        """Return the item that an update belongs to."""
        return self.provider.read_item(update)

    def complete_item(self, contents: list[Content], item: Mapping[str, Any] | None, /) -> list[Content]:
        return self.provider.complete_item(contents, item)

    def hosted_calls(self, item: Mapping[str, Any], /) -> Iterable[HostedCall]:
        """List what a finished item says of calls that the service runs."""
        return self.provider.hosted_calls(item)

    def service_files(self, content: Content, /) -> Iterable[ServiceFile]:
        """List the files of the service to which a content refers."""
        return self.provider.service_files(content)

    def continuation_messages(self, response: ChatResponse[Any], /) -> Sequence[Message] | None:
        """Return the messages by which a model that has paused continues."""
        found = (client.provider.continuation_messages(response) for client in self.clients)
        return next((messages for messages in found if messages is not None), None)


def without_conversation(item: Any) -> Any:
    """Remove the id of the conversation that a fallback's service keeps: the agent's own service does not have it."""
    target = item if isinstance(item, ChatResponseUpdate) else item.response
    target.conversation_id = None
    return item


def _options_for(provider: ModelProvider, call: ModelCall) -> dict[str, Any]:
    """Return the options of a call for another client, which has a model of its own."""
    if type(provider) is type(call.provider):
        left_out = _CONVERSATION_OPTIONS | {"model"}
        return {name: value for name, value in call.options.items() if name not in left_out}
    options = {name: value for name, value in call.options.items() if name in _COMMON_OPTIONS}
    tools: Any = options.get("tools") or []
    tool_list = cast("list[Any]", tools) if isinstance(tools, list | tuple) else [tools]
    options["tools"] = [tool for tool in tool_list if isinstance(tool, FunctionTool)]
    if not options["tools"]:
        for name in ("tools", "tool_choice", "allow_multiple_tool_calls"):
            options.pop(name, None)
    return options


def _send_by(client: Any) -> Callable[[Sequence[Message], Mapping[str, Any]], Any]:
    async def send(messages: Sequence[Message], options: Mapping[str, Any]) -> Any:
        below: Any = super(FunctionInvocationLayer, client)  # the agent's own client runs the tools
        return below.get_response(list(messages), stream=True, options=dict(options))

    return send


def _copy_message(message: Message) -> Message:
    message_copy = copy.copy(message)
    message_copy.contents = [copy.copy(content) for content in message.contents]
    for content in message_copy.contents:
        content.additional_properties = dict(content.additional_properties)
    return message_copy
