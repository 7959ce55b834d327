"""Long histories pass the framework's loop of tool calls as one message; model, middleware and clients see them all."""

import gc
from collections.abc import Sequence
from dataclasses import replace

import pytest
from agent_framework import ChatMiddleware, FunctionMiddleware, Message, tool
from agent_framework_openai import OpenAIChatClient

from tests.durable_agent_host.test_wire_equivalence import of_upstream
from tests.durable_agent_host.wire_lab import Lab

TURNS = 150
MODES = {"unset": {}, "false": {"store": False}}


@tool
def look_up(word: str) -> str:
    """Look a word up."""
    return f"found {word}"


class Sees(ChatMiddleware):
    """Middleware that counts the messages of each call, and whether any of them is not of the conversation."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.kinds: set[type] = set()

    async def process(self, context, call_next):
        """Count."""
        self.counts.append(len(context.messages))
        self.kinds |= {type(one) for one in context.messages}
        await call_next()


class Passes(FunctionMiddleware):
    """Middleware of tools, which sees no messages."""

    async def process(self, context, call_next):
        """Go on."""
        await call_next()


def text_turn(number: int) -> list[dict]:
    """A stored turn of words."""
    about = {"correlationId": f"t{number}", "createdAt": "now"}
    return [
        {
            "$type": kind,
            **about,
            "messages": [{"role": role, "contents": [{"$type": "text", "text": f"{role} {number}"}]}],
        }
        for kind, role in (("request", "user"), ("response", "assistant"))
    ]


def long_lab(mode: str = "false", **arguments) -> Lab:
    """A lab with a long conversation, whose next turn calls a tool."""
    lab = Lab(tools=[look_up], options=MODES[mode], **arguments)
    entries = [entry for number in range(TURNS) for entry in text_turn(number)]
    lab.session = replace(lab.session, entries=(*of_upstream(["call_1"]), *entries, *of_upstream(["call_2"])))
    lab.plan({"calls": [{"name": "look_up", "arguments": {"word": "a"}}]}, {"text": "It is so."})
    return lab


def words(items: Sequence[dict]) -> list[str]:
    """What the messages of a request say."""
    return [part["text"] for item in items if item["type"] == "message" for part in item["content"]]


@pytest.mark.parametrize("mode", MODES)
async def test_what_is_sent_is_what_middleware_would_have_seen(mode):
    """The requests of an agent whose history is held back are those of one whose middleware sees all of it."""
    sees = Sees()
    plain, watched = long_lab(mode), long_lab(mode, agent_arguments={"middleware": [sees]})
    for one in (plain, watched):
        for text in ("first", "second"):
            assert (await one.cold_turn(text)).error is None
    assert plain.bodies == watched.bodies
    said = [f"{role} {number}" for number in range(TURNS) for role in ("user", "assistant")]
    first, second, *_ = plain.inputs
    assert words(first) == ["look", "Found.", *said, "look", "Found.", "first"]
    calls = [item["type"] for item in second if item["type"] != "message"]
    if mode == "false":
        assert calls == ["function_call", "function_call_output"] * 3
        assert words(second) == words(first)
    else:  # the service has the conversation
        assert calls == ["function_call_output"]
        assert words(second) == []
    assert sees.counts[0] == 2 * TURNS + 9
    assert all(issubclass(kind, Message) and kind.__name__ != "HistoryPlaceholder" for kind in sees.kinds)


async def test_middleware_of_tools_changes_nothing():
    """It sees no messages, so the history is held back beside it too."""
    plain, passing = long_lab(), long_lab(agent_arguments={"middleware": [Passes()]})
    for one in (plain, passing):
        assert (await one.cold_turn("first")).error is None
    assert plain.bodies == passing.bodies


class Counting(OpenAIChatClient):
    """A client of the app's own, which looks at what it is asked."""

    counts: list[int]

    def get_response(self, messages, **arguments):
        """Count."""
        self.counts.append(len(messages))
        return super().get_response(messages, **arguments)


async def test_a_client_of_the_apps_own_sees_every_message():
    """Its override stands before the framework's loop."""
    counts: list[int] = []

    class Own(Lab):
        def client(self, http):
            made = super().client(http)
            made.__class__ = Counting
            made.counts = counts
            return made

    lab, plain = long_lab(), long_lab()
    lab.__class__ = Own
    for one in (lab, plain):
        assert (await one.cold_turn("first")).error is None
    assert counts == [2 * TURNS + 9]
    assert lab.bodies == plain.bodies


@pytest.mark.parametrize("middleware", [None, [Passes()]], ids=["plain", "with middleware of tools"])
async def test_a_long_history_is_no_garbage(middleware):
    """It is gone when its turn has ended, without a collection, which would hold all threads."""
    arguments = {"middleware": middleware} if middleware else {}
    lab = long_lab(agent_arguments=arguments)
    assert (await lab.cold_turn("warm-up")).error is None
    gc.collect()
    gc.disable()
    try:
        before = alive()
        outcome = await lab.cold_turn("first")
        assert outcome.error is None
        del outcome
        assert alive() - before < TURNS
    finally:
        gc.enable()


def alive() -> int:
    """Count the messages of the framework in this process."""
    return sum(isinstance(one, Message) for one in gc.get_objects())
