"""The updates of a run: each is read by the fold once, and nothing of what is stored depends on it."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from agent_framework import Agent, AgentResponseUpdate, ChatContext, ChatResponseUpdate, Content, chat_middleware, tool
from agent_framework_openai import OpenAIChatClient
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.agent.agent_runner import AgentRunner
from durable_agent_host.agent.run_output import PayloadSize, RunOutput
from durable_agent_host.codec.content import encode_content
from durable_agent_host.model.provider_item import ItemPart
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import TurnOutcome, TurnRequest
from durable_agent_host.providers.openai.provider import RESPONSES, ResponsesProvider
from durable_agent_host.stream.fold import fold_updates
from tests.kit import PracticeModel

REQUEST = TurnRequest("Agent", "session", "turn", "go", created_at="2026-01-01T00:00:00+00:00")
WORDS = " ".join(f"word{number}" for number in range(80))


class CountingProvider(ResponsesProvider):
    """The provider of the client, which counts how often the fold reads each live update."""

    def __init__(self) -> None:
        self.reads: Counter[int] = Counter()
        self.seen: list[Any] = []

    def read_item(self, update: Any, /) -> ItemPart | None:
        """Count the read."""
        event = update.raw_representation
        while isinstance(event, ChatResponseUpdate | AgentResponseUpdate):
            event = event.raw_representation
        if event is not None:  # the results of tools come from no model
            self.seen.append(event)  # an id is that of one event for as long as the event lives
            self.reads[id(event)] += 1
        return RESPONSES.read_item(update)


@tool
def echo(text: str) -> str:
    """Echo."""
    return text


def turn(model: PracticeModel, provider: Any, **options: Any) -> TurnOutcome:
    """Run a turn of two model calls, with a tool call between them."""
    model.plan({"calls": [{"name": "echo", "arguments": {"text": "hello"}}]}, {"text": WORDS})

    async def played() -> TurnOutcome:
        client = OpenAIChatClient(model="practice", api_key="practice", base_url=model.url)
        try:
            agent = Agent(client, "Work.", name="Agent", tools=[echo], default_options={"store": False}, **options)
            return await AgentRunner("Agent", agent, lambda _: provider).run(Session(), REQUEST)
        finally:
            await client.client.close()

    return asyncio.run(played())


def test_a_turn_folds_each_update_once(model: PracticeModel):
    """The client, the journal, the look for approvals and the turn's end share one fold of each model call."""
    provider = CountingProvider()
    outcome = turn(model, provider)
    assert (outcome.status, outcome.text) == ("completed", WORDS)
    assert len(provider.reads) > 80
    assert set(provider.reads.values()) == {1}
    assert outcome.usage


def test_what_middleware_of_the_app_changes_is_what_is_stored(model: PracticeModel):
    """A fold of the model's own stream does not take the place of a stream that was changed on its way."""

    @chat_middleware
    async def shout(context: ChatContext, call_next: Callable[[], Any]) -> None:
        def louder(update: ChatResponseUpdate) -> ChatResponseUpdate:
            contents = [
                Content.from_text(one.text.upper(), merge_mode=one.merge_mode)
                if one.type == "text" and one.text
                else one
                for one in update.contents
            ]
            return ChatResponseUpdate(contents=contents, role="assistant", response_id=update.response_id)

        context.stream_transform_hooks.append(louder)
        await call_next()

    outcome = turn(model, RESPONSES, middleware=[shout])
    assert outcome.text == WORDS.upper()


def said(*contents: Content, **names: Any) -> ChatResponseUpdate:
    """Make an update of a chat client."""
    return ChatResponseUpdate(contents=list(contents), role="assistant", response_id="r", **names)


def passed_on(update: ChatResponseUpdate, **changes: Any) -> AgentResponseUpdate:
    """Pass an update on as the framework's agent does."""
    names = {name: getattr(update, name) for name in ("contents", "role", "response_id", "message_id", "finish_reason")}
    return AgentResponseUpdate(author_name="Agent", raw_representation=update, **(names | changes))


CALL = [said(Content.from_text("one ")), said(Content.from_text("two")), said(finish_reason="stop")]


@pytest.mark.parametrize(
    "change",
    [
        {"contents": [Content.from_text("other")]},
        {"response_id": None},
        {"role": "user"},
        {"author_name": "Other"},
        {"agent_id": "a"},
        {"raw_representation": None},
    ],
)
def test_a_changed_update_keeps_its_call_as_it_came(change: dict[str, Any]):
    """Whatever differs from the client's update is kept."""
    produced = RunOutput(RESPONSES)
    updates = [passed_on(CALL[0]), passed_on(CALL[1]), passed_on(CALL[2])]
    for name, value in change.items():
        setattr(updates[1], name, value)
    for update in updates:
        produced.add(update, 0)
    produced.fold_call(CALL)
    produced.finish_call(0)
    assert len(produced) == len(updates)
    assert produced.response().to_dict() == fold_updates(updates, RESPONSES).to_dict()


def test_a_finished_call_is_kept_as_its_fold():
    """Its updates are gone; the response is the same, with the token counts that the framework adds up."""
    usage = Content.from_usage({"total_token_count": 3})
    call = [*CALL, said(usage)]
    summed = Content.from_usage({"total_token_count": 10}, merge_mode="replace")
    updates = [*map(passed_on, CALL), passed_on(call[-1], contents=[summed])]
    produced = RunOutput(RESPONSES)
    produced.add(passed_on(said(Content.from_text("before"))), None)
    for update in updates:
        produced.add(update, 1)
    produced.fold_call(call)
    produced.finish_call(1)
    assert len(produced) == 2
    assert produced.updates_streamed == 5
    assert produced.response(1).to_dict() == fold_updates(updates, RESPONSES).to_dict()
    assert produced.response(1).usage_details == {"total_token_count": 10}


PROPERTIES = st.dictionaries(st.text(max_size=3), st.text(max_size=3) | st.integers(), max_size=2)
CONTENTS = st.one_of(
    st.builds(
        lambda text, properties: Content.from_text(text, additional_properties=properties, merge_mode="append"),
        st.text(st.characters(codec=None, categories=None), max_size=5),
        PROPERTIES,
    ),
    st.builds(lambda text: Content.from_text_reasoning(text=text, id="i"), st.text(max_size=3)),
)


@given(st.lists(st.lists(CONTENTS, max_size=3), max_size=8))
def test_a_stream_weighs_what_its_contents_weigh(updates: list[list[Content]]):
    """The sum is that of the bytes of their JSON."""
    weight = PayloadSize()
    for contents in updates:
        weight.add(contents)
    plain = [
        json.dumps([encode_content(one) for one in contents], ensure_ascii=False, separators=(",", ":"))
        for contents in updates
    ]
    assert weight.total_bytes() == sum(len(text.encode("utf-8", "surrogatepass")) for text in plain)
