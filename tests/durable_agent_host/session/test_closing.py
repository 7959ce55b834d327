"""What is kept of an answer that was cut off."""

import pytest
from agent_framework import Content, Message

from durable_agent_host.session.transcript import finished_part

THOUGHT = Content.from_text_reasoning(text="Let me s")
SEALED = Content.from_text_reasoning(text="Let me see.", protected_data="sealed")
SAID = Content.from_text("I lo")
CALL = Content.from_function_call("c", "f", arguments='{"a":')


@pytest.mark.parametrize(
    ("came", "kept"),
    [
        ([THOUGHT], []),
        ([SEALED, CALL], []),
        ([SEALED, SAID], [SEALED, SAID]),
        ([SEALED, SAID, THOUGHT], [SEALED, SAID]),
        ([SEALED, SAID, SEALED, THOUGHT, CALL], [SEALED, SAID]),
    ],
)
def test_reasoning_that_led_to_nothing_is_not_kept(came, kept):
    """Cut off before its seal, or followed by a call that did not run, it is refused by the service that wrote it."""
    messages = finished_part([Message("assistant", came)])
    assert [content for message in messages for content in message.contents] == kept
