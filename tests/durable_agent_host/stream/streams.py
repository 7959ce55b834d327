"""Streams of the Responses API as updates: recorded ones, ones made of recorded bodies, and generated ones."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from agent_framework import AgentResponse, AgentResponseUpdate, Message
from agent_framework._types import map_chat_to_agent_update
from agent_framework.exceptions import ChatClientException
from agent_framework_openai import OpenAIChatClient, _chat_client
from openai._models import construct_type
from openai.types.responses import Response, ResponseStreamEvent

from durable_agent_host.codec.message import encode_message
from durable_agent_host.errors import ProviderError
from durable_agent_host.providers.openai.stream_normalization import ResponseEventNormalizer
from durable_agent_host.providers.registry import provider_for
from durable_agent_host.stream.fold import fold_updates
from practice_model.dialects.responses.event_grammar import stream_events
from tests.kit import RECORDINGS

FOLDER = RECORDINGS / "openai-responses"
_BROUGHT = OpenAIChatClient(model="practice", api_key="practice")
provider = provider_for(_BROUGHT)
CLIENT = provider.adapt(_BROUGHT)
TERMINAL_EVENTS = {"response.completed", "response.incomplete", "response.failed"}


class JournalState(dict[str, Any]):
    """A recorded event, which the SDK parses once for all tests of a worker."""

    @cached_property
    def typed_event(self) -> Any:
        """What the SDK makes of it; nobody changes it."""
        return _parse_event(self)


def _parse_event(event: dict[str, Any]) -> Any:
    return construct_type(type_=ResponseStreamEvent, value=event)


@dataclass(frozen=True)
class Stream:
    """One recorded answer.

    Attributes:
        name: where it is in the recordings.
        events: as they were sent, or made of a body that was sent whole.
        final: the provider's own final response, None when the stream has none.
    """

    name: str
    events: Sequence[dict[str, Any]]
    final: dict[str, Any] | None

    @property
    def updates(self) -> list[AgentResponseUpdate]:
        """What the real client makes of the events."""
        return updates_of(self.events)


def updates_of(events: Iterable[dict[str, Any]]) -> list[AgentResponseUpdate]:
    """Let the real client parse events, up to the one that it takes for the end of everything."""
    call_ids: dict[int, tuple[str, str]] = {}
    options: dict[str, Any] = {
        "store": False,
        _chat_client._SEEN_FUNCTION_CALL_OUTPUT_IDS_OPTION: set(),
        _chat_client._SEEN_TEXT_ANNOTATION_KEYS_OPTION: set(),
    }
    updates: list[AgentResponseUpdate] = []
    normalizer = ResponseEventNormalizer()
    for event in chain.from_iterable(normalizer.read(None, event) for event in events):
        typed_event = event.typed_event if isinstance(event, JournalState) else _parse_event(event)
        try:
            update = CLIENT._parse_chunk_from_openai(typed_event, options, call_ids)
        except (ChatClientException, ProviderError):  # the answer failed: the client gives no more of it
            break
        updates.append(map_chat_to_agent_update(update, "Player"))
    return updates


def parse_response(final: dict[str, Any]) -> list[Message]:
    """Let the real client parse a response that was not streamed; one that failed is no answer."""
    response = construct_type(type_=Response, value=final)
    try:
        return fold_updates(CLIENT._read_response(response), provider).messages
    except ProviderError:
        return []


def encode_messages(answer: AgentResponse | list[Message]) -> list[dict[str, Any]]:
    """Give messages as they are stored."""
    messages = answer.messages if isinstance(answer, AgentResponse) else answer
    return [json.loads(json.dumps(encode_message(message))) for message in messages]


@cache
def read_recordings() -> list[Stream]:
    """Give every recorded stream, and every recorded body as a stream."""
    return [*_read_streams(), *_bodies()]


def _read_streams() -> Iterator[Stream]:
    for path in sorted([*FOLDER.glob("*.jsonl"), *FOLDER.glob("multiturn/*/*.jsonl")]):
        events = [JournalState(json.loads(line)["data"]) for line in path.read_text().splitlines()]
        finals = [event["response"] for event in events if event["type"] in TERMINAL_EVENTS]
        yield Stream(_name(path), events, finals[-1] if finals else None)


def _bodies() -> Iterator[Stream]:
    for path in sorted([*FOLDER.glob("*.response.json"), *FOLDER.glob("multiturn/*/*.response.json")]):
        body = json.loads(path.read_text())
        if body.get("object") == "response" and body.get("status") in {"completed", "incomplete"}:
            yield Stream(_name(path), [JournalState(event) for event in stream_events(body)], body)


def _name(path: Path) -> str:
    return str(path.relative_to(FOLDER))
