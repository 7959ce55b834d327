"""A provider of fewer than thirty lines for a chat client of its own; run as a program, a turn in a new process.

The client's model wants the private block of each of its answers back, which the framework's contents have no place
for. As a program this reads ``{"state", "text", "registered"}`` from standard input, runs one turn on that state, and
writes ``{"state", "sent", "answer", "modules"}``.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
)

from durable_agent_host.agent.agent_runner import AgentRunner
from durable_agent_host.agent.dynamic_subclass import copy_with_mixin
from durable_agent_host.codec.entity_state import decode_session, encode_session
from durable_agent_host.model.provider_item import ItemPart
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.providers.generic_provider import GenericProvider
from durable_agent_host.providers.registry import provider_for, register_provider
from tests.null_turn_log import NullTurnLog

SENT: list[list[dict[str, Any]]] = []
"""What the model received: the messages of each call."""


class TinyClient(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """Asks a model in this process, which answers in two fragments and gives a block with the second."""

    def _inner_get_response(self, *, messages: Sequence[Message], stream: bool, options: Any, **kwargs: Any) -> Any:
        SENT.append([self.prepare(message) for message in messages])
        turn = sum(message["role"] == "assistant" for message in SENT[-1]) + 1

        async def updates() -> AsyncIterator[ChatResponseUpdate]:
            for raw in ({"text": "Answer "}, {"text": f"{turn}.", "block": {"seal": f"s-{turn}", "of": [turn, None]}}):
                content = Content.from_text(raw["text"])
                yield ChatResponseUpdate(contents=[content], role="assistant", raw_representation=raw | {"tiny": 0})

        return ResponseStream(updates(), finalizer=ChatResponse.from_updates)

    def prepare(self, message: Message) -> dict[str, Any]:
        """Write a message as the model takes it."""
        return {"role": message.role, "text": message.text}


# --- the provider --------------------------------------------------------------------------------------------

BLOCK = "tiny.block"


class SendsBlocks:
    """The override of the hosted client."""

    def prepare(self, message: Message) -> dict[str, Any]:
        """Write the block of a response next to its text."""
        client: Any = super()
        blocks = [content.additional_properties.get(BLOCK) for content in message.contents]
        return client.prepare(message) | {"blocks": [block for block in blocks if block]}


class TinyProvider(GenericProvider):
    """Keeps the blocks of `TinyClient`."""

    def adapt(self, client: Any, /) -> Any:
        """Send blocks back."""
        return copy_with_mixin(client, SendsBlocks)

    def read_item(self, update: Any, /) -> ItemPart | None:
        """An answer is one item; its last update has the block."""
        raw = update.raw_representation
        raw = getattr(raw, "raw_representation", raw)
        return ItemPart(raw["tiny"], item=raw if "block" in raw else None) if isinstance(raw, dict) else None

    def complete_item(self, contents: list[Content], item: Any, /) -> list[Content]:
        """Keep the block with the text."""
        if item is not None:
            contents[0].additional_properties[BLOCK] = item["block"]
        return contents


# --- one turn ------------------------------------------------------------------------------------------------


async def _turn(state: Any, text: str) -> dict[str, Any]:
    session = decode_session(state) if state is not None else Session()
    runner = AgentRunner(
        "Tiny", Agent(TinyClient(), "Talk.", name="Tiny"), provider_for, open_log=NullTurnLog, features=()
    )
    outcome = await runner.run(session, TurnRequest("Tiny", "one", f"turn-{len(session.entries)}", text))
    session = replace(session, entries=session.entries + outcome.entries, agent_session=outcome.agent_session)
    return {"state": encode_session(session), "sent": SENT, "answer": outcome.text, "modules": sorted(sys.modules)}


if __name__ == "__main__":
    request = json.load(sys.stdin)
    if request["registered"]:
        register_provider(TinyClient, TinyProvider())
    json.dump(asyncio.run(_turn(request["state"], request["text"])), sys.stdout)
