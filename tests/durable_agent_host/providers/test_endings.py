"""How providers say that an answer is whole."""

from types import SimpleNamespace as Raw
from typing import Any

import pytest
from agent_framework import AgentResponseUpdate, ChatResponse, ChatResponseUpdate, Content, Message

from durable_agent_host.providers.stream_completion import is_truncated


def updates(*raws: Any) -> list[AgentResponseUpdate]:
    """Live updates with these objects of an SDK, as an agent gives them."""
    return [AgentResponseUpdate(raw_representation=ChatResponseUpdate(raw_representation=raw)) for raw in raws]


def kinds(*names: str) -> list[Raw]:
    """Events of these types."""
    return [Raw(type=name) for name in names]


def chunk(finish: str | None) -> Raw:
    """A chunk of Chat Completions."""
    return Raw(choices=[Raw(finish_reason=finish)])


def candidate(finish: str | None, blocked: str | None = None) -> Raw:
    """A chunk of Gemini."""
    return Raw(candidates=[Raw(finish_reason=finish)], prompt_feedback=Raw(block_reason=blocked))


@pytest.mark.parametrize(
    ("raws", "early"),
    [
        (kinds("response.created", "response.output_text.delta", "response.completed"), False),
        (kinds("response.created", "response.incomplete"), False),
        (kinds("response.created", "error"), False),
        (kinds("response.created", "response.output_text.delta"), True),
        ([Raw(type="response.created", response=Raw(status="completed"))], False),
        ([chunk(None), chunk("stop"), Raw(choices=[])], False),
        ([chunk(None), chunk(None)], True),
        (
            [*kinds("message_start", "content_block_delta"), Raw(type="message_delta", delta=Raw(stop_reason="x"))],
            False,
        ),
        (kinds("message_start", "content_block_delta", "content_block_stop"), True),
        ([Raw(type="message_delta", delta=Raw(stop_reason=None))], True),
        ([candidate(None), candidate("STOP")], False),
        ([candidate(None)], True),
        ([candidate(None, "SAFETY")], False),
        ([{"contentBlockDelta": {}}, {"messageStop": {"stopReason": "end_turn"}}], False),
        ([{"messageStart": {}}, {"contentBlockDelta": {}}], True),
        ([], True),
        ([None], True),
    ],
)
def test_a_stream_without_its_provider_s_last_word_has_ended_early(raws, early):
    """A connection that a proxy closed in good order is no whole answer, and nothing is none either."""
    assert is_truncated(updates(*raws)) == early


@pytest.mark.parametrize("raw", [None, Raw(type="of another"), {"of": "another"}])
def test_a_client_of_which_nothing_is_known_is_believed(raw):
    """Not every client tells how its answer ended."""
    said = ChatResponseUpdate(contents=[Content.from_text("Hello.")], raw_representation=raw)
    assert not is_truncated([said])
    assert not is_truncated([ChatResponseUpdate(finish_reason="stop", raw_representation=raw)])


@pytest.mark.parametrize(
    ("raw", "early"),
    [
        (Raw(object="response", status="completed"), False),
        (Raw(object="response", status="in_progress"), True),
        (chunk("length"), False),
        (chunk(None), True),
        (Raw(type="message", stop_reason="end_turn"), False),
        (Raw(type="message", stop_reason=None), True),
        (candidate("MAX_TOKENS"), False),
        (None, False),
    ],
)
def test_an_answer_that_was_not_streamed_says_that_it_is_whole(raw, early):
    """A body that is JSON of another shape, or of an answer that is still being made, is no answer."""
    assert is_truncated([ChatResponse(messages=[Message("assistant", ["Hi"])], raw_representation=raw)]) == early
