"""What an app redacts, content by content, and what of a content goes with it."""

import json

import pytest
from agent_framework import Content, Message

from durable_agent_host import redact_personal_data
from durable_agent_host.codec.content import encode_content
from durable_agent_host.model.provider_item import PART_OF, STAMP
from durable_agent_host.turn.turn_redactor import REDACTED, Redactor

CARD = "4111 1111 1111 1111"
MAIL = "someone@example.com"
STAMPED = {STAMP: {"provider": "p", "type": "t", "id": "i"}}
redactor = Redactor(redact_personal_data)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"pay {CARD} 12/29 123.", "pay [redacted] 12/29 123."),
        (f"pay {CARD} 123", "pay [redacted] 123"),
        ("378282246310005 and 5555-5555-5555-4444", "[redacted] and [redacted]"),
        (f"<{MAIL}>, a.b+c@sub.example.org", "<[redacted]>, [redacted]"),
        ("Authorization: Bearer abc.def-1234567890", "Authorization: Bearer [redacted]"),
        ("my key is sk-proj-abcdefghijkl", "my key is [redacted]"),
        (json.dumps(f"Card:\n{CARD}\n"), r'"Card:\n[redacted]\n"'),
        (json.dumps(f"x\n{MAIL}\nb"), r'"x\n[redacted]\nb"'),
        (f"HOME\\{MAIL}", "HOME\\[redacted]"),
        (f"{MAIL}- {MAIL}_x {MAIL}.", "[redacted]- [redacted]_x [redacted]."),
        ("bob@\u043f\u0440\u0438\u043c\u0435\u0440.\u0440\u0444", "[redacted]"),
        *((f"a {CARD.replace(' ', gap)} b", "a [redacted] b") for gap in ("\xa0", "  ", "\t", ".", "\u2009", "\u2013")),
        (f"card no.{CARD.replace(' ', '')}, 5500-0000-0000-0004", "card no.[redacted], [redacted]"),
        ("\u53f74111111111111111\u5df2", "\u53f7[redacted]\u5df2"),
        ("a@b@c@d.example.org", "a@b@[redacted]"),
        ("30569309025904, 6011000000000000004 (19)", "[redacted], 6011000000000000004 (19)"),
    ],
)
def test_personal_data_is_masked(text: str, expected: str):
    """A card that is followed by other digits is found, too."""
    assert redactor.text(text) == expected
    assert redactor.text(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "4111 1111 1111 1112",
        "order 1732312345678, call +49 30 901820 12345",
        "resp_4111111111111111",
        "0.4111111111111111",
        "write to me @home",
        "a token of thanks",
        "4.111.111.111.111.111, 1.4111.1111.1111.1111",
        "cards: a4111111111111111, 4111111111111111b",
        "git@github.com:org/repo.git, logo@2x.png, @decorator, a@b",
        "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1, 78 33 50 8 45 39 12 99",
        "0f0f0f0f-4111-1111-1111-111111111111, DE12 5001 0517 5407 3249 31",
        'primary key: user_id2, ?code=python3, token: 12345 of 99999, password: "hunter2"',
    ],
)
def test_similar_text_is_unchanged(text: str):
    """Numbers without a right check digit, ids and fractions are none."""
    assert redactor.text(text) == text


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
