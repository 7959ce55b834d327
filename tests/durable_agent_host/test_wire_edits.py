"""What a middleware changes in the history of one turn is what the model gets, whatever the service's items say.

The same is true of contents whose items are damaged.
"""

import json
from dataclasses import replace
from typing import Any

import pytest
from agent_framework import ChatMiddleware, Content, tool

from durable_agent_host.model.provider_item import STAMP
from tests.durable_agent_host.provider_lab import ProviderLab

SECRET, MASK = "SECRET", "[mask]"


@tool(name="look_up")
def find_word(word: str) -> str:
    """Look a word up."""
    return "found it"


def mask(content: Content) -> None:
    """Mask the secret in a content, in place."""
    if content.text:
        content.text = content.text.replace(SECRET, MASK)
    if content.arguments:
        content.arguments = json.loads(json.dumps(content.arguments).replace(SECRET, MASK))
    for part in [*(content.inputs or ()), *(content.outputs if isinstance(content.outputs, list) else ())]:
        mask(part)


class Mask(ChatMiddleware):
    """Masks the secret in the answers of a request."""

    async def process(self, context, call_next):
        """Mask, and go on."""
        for message in context.messages:
            for content in message.contents if message.role == "assistant" else ():
                mask(content)
        await call_next()


@pytest.mark.parametrize("kind", ["openai", "anthropic", "gemini", "chat"])
@pytest.mark.parametrize("padding", ["", "some more words, so that the text is stored once: "], ids=["short", "long"])
async def test_a_masked_history_is_sent_masked(kind: str, padding: str):
    """Reasoning, code, arguments and texts; the service accepts them, signed texts without their signature."""
    secret = f"{padding}{SECRET}"
    lab = ProviderLab(tools=[find_word])
    call = {"name": "look_up", "arguments": {"word": secret}}
    items = [{"reasoning": f"hm {secret}"}, {"code": f"print('{secret}')", "logs": "ok\n"}, {"calls": [call]}]
    lab.plan({"items": items}, {"items": [{"reasoning": "r"}, {"text": f"It is {secret}."}]})
    assert (await lab.cold_turn(kind, "first")).status == "completed"
    first_count = len(lab.bodies)
    lab.middleware = [Mask()]
    lab.plan({"text": "Fine."})
    outcome = await lab.cold_turn(kind, "second")
    assert (outcome.status, outcome.error, lab.refusals) == ("completed", None, [])
    sent = json.dumps(lab.bodies[first_count:])
    assert SECRET not in sent
    assert sent.count(MASK) >= 2


DAMAGES: dict[str, Any] = {"missing": ..., "text": "x", "null": None, "list": [1], "empty": {}, "no type": {"id": "x"}}


def damage(entries: Any, item: Any) -> Any:
    """Copy entries, with another value for every stored item."""

    def change(fields: dict[str, Any]) -> dict[str, Any]:
        if STAMP in fields:
            fields[STAMP] = {name: value for name, value in fields[STAMP].items() if name != "item"}
            fields[STAMP] |= {} if item is ... else {"item": item}
        return fields

    return json.loads(json.dumps(entries), object_hook=change)


@pytest.mark.drawn(6)
@pytest.mark.parametrize("kind", ["openai", "anthropic", "gemini", "chat"])
@pytest.mark.parametrize("name", DAMAGES)
async def test_a_damaged_item_is_none(kind: str, name: str):
    """The next turn sends what its contents say, and the service accepts it."""
    lab = ProviderLab(tools=[find_word])
    call = {"name": "look_up", "arguments": {"word": "a word"}}
    items = [{"reasoning": "hm"}, {"code": "print('code')", "logs": "ok\n"}, {"calls": [call]}]
    lab.plan({"items": items}, {"items": [{"reasoning": "r"}, {"text": "It is so."}]})
    assert (await lab.cold_turn(kind, "first")).status == "completed"
    assert STAMP in json.dumps(lab.session.entries)
    lab.session = replace(lab.session, entries=tuple(damage(lab.session.entries, DAMAGES[name])))
    lab.plan({"text": "Fine."})
    outcome = await lab.cold_turn(kind, "second")
    assert (outcome.status, outcome.error, lab.refusals) == ("completed", None, [])
    sent = json.dumps(lab.bodies[-1])
    assert [text in sent for text in ("a word", "found it", "It is so.")] == [True] * 3
    assert kind not in {"openai", "anthropic"} or "print('code')" in sent
