"""How a stream of the Responses API ends."""

from types import SimpleNamespace

import pytest
from agent_framework import AgentResponseUpdate, ChatResponseUpdate

from durable_agent_host.providers.openai import ended_early


def updates(*kinds: str) -> list[AgentResponseUpdate]:
    """Live updates with events of these types, as an agent gives them."""
    return [
        AgentResponseUpdate(raw_representation=ChatResponseUpdate(raw_representation=SimpleNamespace(type=kind)))
        for kind in kinds
    ]


@pytest.mark.parametrize(
    ("kinds", "early"),
    [
        (("response.created", "response.output_text.delta", "response.completed"), False),
        (("response.created", "response.incomplete"), False),
        (("response.created", "response.output_text.delta"), True),
        (("message_start", "content_block_delta"), False),
        ((), False),
    ],
)
def test_a_stream_without_its_last_event_has_ended_early(kinds, early):
    """A connection that a proxy closed in good order is no whole answer; other providers are not judged."""
    assert ended_early(updates(*kinds)) == early
