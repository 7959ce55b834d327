"""Measures what becomes of one value on a provider's wire: with the framework alone, and with this host.

A probe puts a mark into one field of one block. The model gives the block, the process ends, and the next turn is run
by another process. The mark is looked for in the contents that the stream gives, in what is stored, and in the request
of the next turn.
"""

import copy
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agent_framework import AgentSession, Content, tool

from durable_agent_host.model.provider_item import PART_OF, STAMP
from tests.durable_agent_host.provider_lab import KINDS, ProviderLab

MARK = "canary7f3a"
"""The value that is looked for."""

_QUESTIONS = "Begin", "Go on"


@dataclass(frozen=True)
class Probe:
    """One value of a provider's wire.

    Attributes:
        block: what the provider calls the block.
        value: which of its values has the mark.
        steps: of the practice model's plan, each the items of one model call; the last one ends the turn.
    """

    block: str
    value: str
    steps: tuple[tuple[Mapping[str, Any], ...], ...]


@dataclass(frozen=True)
class Found:
    """Where the mark was.

    Attributes:
        is_streamed: in the contents that a stream gives.
        is_stored: in what is stored.
        is_replayed: in the next request; None when there was none, or the model refused it.
    """

    is_streamed: bool
    is_stored: bool
    is_replayed: bool | None


def probe(block: str, value: str, *items: Mapping[str, Any], is_answer: bool = False) -> Probe:
    """Make a probe of items and an answer in one model call; with ``is_answer``, the items are the answer."""
    answer: tuple[Mapping[str, Any], ...] = () if is_answer else ({"text": "Done."},)
    return Probe(block, value, ((*({"item": item} for item in items), *answer),))


def probe_arguments(block: str, value: str) -> Probe:
    """Make a probe of the arguments of a call of the app's tool, with blanks as no program writes them."""
    call = {"calls": [{"name": "note", "arguments": f'{{"text":  "{MARK}"}}'}]}
    return Probe(block, value, ((call,), ({"text": "Done."},)))


@tool(name="note")
def count_characters(text: str) -> str:
    """Take a note."""
    return f"noted {len(text)} characters"


def _lab(test_probe: Probe) -> ProviderLab:
    lab = ProviderLab(tools=[count_characters])
    lab.plan(*({"items": list(items)} for items in test_probe.steps))
    return lab


def _has_mark(value: Any) -> bool:
    return MARK in json.dumps(value, ensure_ascii=False, default=str)


def _has_replayed_mark(kind: str, lab: ProviderLab, before: int) -> bool | None:
    sent = lab.bodies[before:]
    if KINDS[kind].keeps_conversation:
        sent = [sent]  # a message is a request of its own there
    return _has_mark(sent[-1]) if sent and not lab.refusals else None


async def with_framework(kind: str, test_probe: Probe) -> Found | None:
    """Run both turns with the framework alone; its session goes through JSON.

    Returns:
        None when the framework has no client for the service.
    """
    if not KINDS[kind].is_of_framework:
        return None
    lab = _lab(test_probe)
    async with lab.agent(kind) as agent:
        session = AgentSession(session_id="session-1")
        stream = agent.run(_QUESTIONS[0], stream=True, session=session)
        contents = [content async for update in stream for content in update.contents]
        answer = await stream.get_final_response()
    is_streamed = _has_mark(
        _neutral([*contents, *(content for message in answer.messages for content in message.contents)])
    )
    session_json = json.dumps(session.to_dict(), default=str)
    before = len(lab.bodies)
    async with lab.agent(kind) as agent:
        session = AgentSession.from_dict(json.loads(session_json))
        try:
            await agent.run(_QUESTIONS[1], stream=True, session=session).get_final_response()
        except Exception:  # noqa: BLE001 - a request that cannot be sent replays nothing
            return Found(is_streamed, MARK in session_json, None)
    return Found(is_streamed, MARK in session_json, _has_replayed_mark(kind, lab, before))


async def with_host(kind: str, test_probe: Probe) -> Found:
    """Run both turns with this host, each in a process that has nothing but the stored session."""
    lab = _lab(test_probe)
    await lab.cold_turn(kind, _QUESTIONS[0])
    contents = _neutral(content for message in lab.messages for content in message.contents)
    if KINDS[kind].keeps_conversation:
        await lab.lose_conversation()
    before = len(lab.bodies)
    outcome = await lab.cold_turn(kind, _QUESTIONS[1])
    is_replayed = _has_replayed_mark(kind, lab, before) if outcome.status == "completed" else None
    return Found(_has_mark(contents), MARK in lab.document, is_replayed)


def _neutral(contents: Iterable[Content]) -> list[Any]:
    """Write contents without what only the provider's own code reads."""
    content_fields: list[Any] = []
    for content in contents:
        plain = copy.copy(content)
        plain.raw_representation = None
        plain.additional_properties = {
            name: value for name, value in content.additional_properties.items() if name not in {STAMP, PART_OF}
        }
        content_fields.append(plain.to_dict())
    return content_fields
