"""A model call as a value, and the chain of layers that it passes through.

A layer has one feature. It gets the call and the rest of the chain, and yields what the model streams; the last item is
the complete response. `durable_agent_host.agent.call_order` has the order of the layers.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_framework import ChatResponse, ChatResponseUpdate, Message

from durable_agent_host.agent.provider import ModelProvider
from durable_agent_host.errors import ProviderError
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.journal_entry import Rejection


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One request to a model's service, equal in every attempt of the turn.

    Attributes:
        path: of the call.
        client: the chat client.
        provider: of the client.
        messages: of the request.
        options: of the request.
        send: sends messages and options through the client; returns its `ResponseStream` or its response.
    """

    path: CallPath
    client: Any
    provider: ModelProvider
    messages: Sequence[Message]
    options: Mapping[str, Any]
    send: Callable[[Sequence[Message], Mapping[str, Any]], Awaitable[Any]]

    @property
    def position(self) -> int:
        """The position of the agent's model call in the turn, from 0."""
        return self.path.position


@dataclass(frozen=True, slots=True)
class CompletedResponse:
    """The complete response of a model call.

    Attributes:
        response: as the client made it.
        updates: from which it was made; empty for a response that was not streamed.
        is_folded: whether the response has its messages; otherwise they are made from the updates.
        rejection: why a layer does not accept the response, so that the model is asked again; or None.
    """

    response: ChatResponse[Any]
    updates: Sequence[ChatResponseUpdate]
    is_folded: bool = False
    rejection: Rejection | None = None


class TruncatedResponseError(ProviderError):
    """The response ended before the provider marked it complete."""


ModelStream = AsyncGenerator[ChatResponseUpdate | CompletedResponse]
NextModelCall = Callable[[ModelCall], ModelStream]
"""The rest of a chain."""


ModelLayer = Callable[[ModelCall, NextModelCall], ModelStream]
"""One feature of model calls: makes a call through the rest of the chain."""
