"""Model and middleware see all messages of a long history."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from agent_framework import ChatMiddleware, tool

from tests.durable_agent_host.test_wire_equivalence import of_upstream
from tests.durable_agent_host.wire_lab import Lab

TURNS = 150
MODES = {"unset": {}, "false": {"store": False}}


@tool(name="look_up")
def find_word(word: str) -> str:
    """Look a word up."""
    return f"found {word}"


class Sees(ChatMiddleware):
    """Middleware that counts the messages of each call."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    async def process(self, context, call_next):
        """Count."""
        self.counts.append(len(context.messages))
        await call_next()


def text_turn(index: int) -> list[dict]:
    """A stored turn of words."""
    about = {"correlationId": f"t{index}", "createdAt": "now"}
    return [
        {
            "$type": kind,
            **about,
            "messages": [{"role": role, "contents": [{"$type": "text", "text": f"{role} {index}"}]}],
        }
        for kind, role in (("request", "user"), ("response", "assistant"))
    ]


def long_lab(mode: str = "false", **arguments) -> Lab:
    """A lab with a long conversation, whose next turn calls a tool."""
    lab = Lab(tools=[find_word], options=MODES[mode], **arguments)
    entries = [entry for index in range(TURNS) for entry in text_turn(index)]
    lab.session = replace(lab.session, entries=(*of_upstream(["call_1"]), *entries, *of_upstream(["call_2"])))
    lab.plan({"calls": [{"name": "look_up", "arguments": {"word": "a"}}]}, {"text": "It is so."})
    return lab


def texts_of(items: Sequence[dict]) -> list[str]:
    """What the messages of a request say."""
    return [part["text"] for item in items if item["type"] == "message" for part in item["content"]]


@pytest.mark.parametrize("mode", MODES)
async def test_what_is_sent_is_what_middleware_would_have_seen(mode):
    """The requests of an agent are the same with and without middleware, which sees all of a long history."""
    sees = Sees()
    plain, with_middleware = long_lab(mode), long_lab(mode, agent_arguments={"middleware": [sees]})
    for process in (plain, with_middleware):
        for text in ("first", "second"):
            assert (await process.cold_turn(text)).error is None
    assert plain.bodies == with_middleware.bodies
    history_texts = [f"{role} {index}" for index in range(TURNS) for role in ("user", "assistant")]
    first, second, *_ = plain.inputs
    assert texts_of(first) == ["look", "Found.", *history_texts, "look", "Found.", "first"]
    calls = [item["type"] for item in second if item["type"] != "message"]
    if mode == "false":
        assert calls == ["function_call", "function_call_output"] * 3
        assert texts_of(second) == texts_of(first)
    else:  # the service has the conversation
        assert calls == ["function_call_output"]
        assert texts_of(second) == []
    assert sees.counts[0] == 2 * TURNS + 9
