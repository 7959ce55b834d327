"""What an app redacts, content by content, and what of a content goes with it."""

import json

import pytest
from agent_framework import Content, Message

from durable_agent_host.codec.content import encode_content
from durable_agent_host.model.provider_item import PART_OF, STAMP
from durable_agent_host.turn.turn_redactor import REDACTED, Redactor
from tests.durable_agent_host.canaries import hide_canaries

CARD = "4111 1111 1111 1111"
MAIL = "some.canary@example.com"
STAMPED = {STAMP: {"provider": "p", "type": "t", "id": "i"}}
redactor = Redactor(hide_canaries)


@pytest.mark.parametrize(
    "content",
    [
        Content.from_text(f"at {MAIL}", annotations=[{"type": "citation", "url": f"https://x.example/?{MAIL}"}]),
        Content.from_text("cited", annotations=[{"type": "citation", "title": MAIL, "snippet": CARD}]),
        Content.from_text_reasoning(text=f"hm {CARD}", protected_data="signed"),
        Content.from_function_call("c", "f", arguments=json.dumps({"card": int(CARD.replace(" ", "")), MAIL: [MAIL]})),
        Content.from_function_call("c", "f", arguments={"to": {"mail": MAIL}}),
        Content.from_function_result("c", result=f"of {MAIL}", exception=f"not {MAIL}"),
        Content.from_function_result("c", result=[Content.from_text(MAIL), Content.from_text("and more")]),
        Content.from_code_interpreter_tool_call(call_id="c", inputs=[Content.from_text(f"print('{MAIL}')")]),
        Content.from_code_interpreter_tool_result(call_id="c", outputs=[Content.from_text(CARD)]),
        Content.from_error(message=MAIL, error_code="e", error_details=CARD),
        Content.from_uri(uri=f"https://x.example/?mail={MAIL}", media_type="text/plain"),
        Content.from_text("whole", additional_properties={STAMP: {"provider": "p", "type": "t", "said": [MAIL]}}),
    ],
    ids=lambda content: content.type,
)
def test_every_text_of_a_content_is_redacted(content: Content):
    """Nested contents, arguments inside of JSON, citations, the provider's item; the original stays as it was."""
    before = json.dumps(encode_content(content))
    redacted_content = redactor.content(content)
    after = json.dumps(encode_content(redacted_content))
    assert (MAIL in before) or (CARD in before)
    assert not any(secret in after for secret in (MAIL, CARD, CARD.replace(" ", "")))
    assert redacted_content.additional_properties[REDACTED] is True
    assert json.dumps(encode_content(content)) == before
    if redacted_content.type == "function_call" and isinstance(redacted_content.arguments, str):
        assert json.loads(redacted_content.arguments) == {"card": "[redacted]", "[redacted]": ["[redacted]"]}


def test_a_redacted_content_has_no_item_and_no_signature():
    """The other parts of the item are parts of nothing then."""
    content = Content.from_text_reasoning(text=MAIL, protected_data="signed", additional_properties=dict(STAMPED))
    two = Content.from_text_reasoning(text="more", additional_properties={PART_OF: "i"})
    other = Content.from_text("fine", additional_properties=dict(STAMPED))
    (message,) = redactor.messages([Message("assistant", [content, two, other])])
    assert [content.additional_properties for content in message.contents] == [{REDACTED: True}, {}, STAMPED]
    assert message.contents[0].protected_data is None
    assert content.protected_data == "signed"
