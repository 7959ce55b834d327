"""A conversation that another provider began, as the provider that goes on can be sent it."""

import copy
import re

from agent_framework import Content, Message

from durable_agent_host.model.provider_item import PART_OF, STAMP
from durable_agent_host.providers.cross_provider_history import TOOLS_OF_SERVICES, ReplayTarget, rewrite_for

TARGET = ReplayTarget("here", unsent=TOOLS_OF_SERVICES, call_ids=re.compile(r"[a-zA-Z0-9_-]{1,64}"))
PICTURE = Content.from_uri("data:image/png;base64,AA==", media_type="image/png")


def there(content, provider="there"):
    """Stamp a content as an item of a provider."""
    item = copy.copy(content)
    item.additional_properties = {
        **content.additional_properties,
        STAMP: {"provider": provider, "type": "t", "id": "i"},
    }
    return item


def plain(messages):
    """Write messages so that they can be compared."""
    return [(message.role, [content.to_dict() for content in message.contents]) for message in messages]


def rewrite(*messages, target=TARGET):
    """Retell messages; neither changes what is given nor anything the second time."""
    before = copy.deepcopy(plain(messages))
    once = rewrite_for(messages, target)
    assert plain(messages) == before
    assert plain(rewrite_for(once, target)) == plain(once)
    return once


def roles_and_texts(messages):
    """Give roles with texts, and the types of what is no text."""
    return [
        (message.role, [content.text if content.type == "text" else content.type for content in message.contents])
        for message in messages
    ]


def test_a_code_run_of_another_provider_becomes_text_and_its_image_is_sent():
    """Code and output become the assistant's words; an image that it made is shown as the user's, after the answer."""
    python = Content.from_text("print(1)", additional_properties={"language": "python"})
    code = there(Content.from_code_interpreter_tool_call(call_id="c", inputs=[python]))
    outputs = [Content.from_text("1"), PICTURE, Content.from_hosted_file("f1", name="a.csv")]
    result = Content.from_code_interpreter_tool_result(
        call_id="c", outputs=outputs, additional_properties={PART_OF: "i"}
    )
    found = rewrite(Message("user", ["go"]), Message("assistant", [code, result, there(Content.from_text("Done."))]))
    assert roles_and_texts(found) == [
        ("user", ["go"]),
        (
            "assistant",
            ["I ran this code:\n```python\nprint(1)\n```", "It printed:\n1\n[image/png]\n[file a.csv]", "Done."],
        ),
        ("user", ["data"]),
    ]
    assert found[2].contents[0].uri == PICTURE.uri


def test_searches_other_tools_and_citations_become_text():
    """What was searched, found and cited is there to read, without what only its service can read."""
    citing_text = Content.from_text(
        "Tea.", annotations=[{"type": "citation", "title": "Tea", "url": "https://tea.example"}]
    )
    contents = [
        there(Content.from_search_tool_call("s", tool_name="web_search", arguments={"query": "tea"})),
        there(
            Content.from_search_tool_result(
                "s", tool_name="web_search", result=[{"title": "Tea", "encrypted_content": "xx"}]
            )
        ),
        there(Content.from_mcp_server_tool_call("m", "find", server_name="docs", arguments='{"q": 1}')),
        there(Content.from_mcp_server_tool_result("m", output=[Content.from_text("page")])),
        there(Content.from_function_call("e", "editor", arguments='{"path": "a"}', informational_only=True)),
        there(citing_text),
    ]
    found = rewrite(
        Message("user", ["go"]),
        Message("assistant", contents),
        Message("tool", [Content.from_function_result("e", result="ok")]),
    )
    assert roles_and_texts(found) == [
        ("user", ["go"]),
        (
            "assistant",
            [
                'I searched by web_search with {"query": "tea"}',
                "I found:\nTea",
                'I called docs/find with {"q": 1}',
                "It gave:\npage",
                'I used editor with {"path": "a"}',
                "Tea.\n\nSources: Tea (https://tea.example)",
            ],
        ),
        ("assistant", ["It gave:\nok"]),
    ]


def test_files_and_media_that_the_target_does_not_take_are_named():
    """A file that another service keeps, and a kind of media that the target refuses, are named to it."""
    sound = Content.from_uri("data:audio/wav;base64,AA==", media_type="audio/wav")
    question = Message("user", ["go", Content.from_hosted_file("file-1", name="a.pdf"), sound, PICTURE])
    found = rewrite(question, Message("assistant", [there(Content.from_text("Hi"))]))
    assert roles_and_texts(found)[0] == (
        "user",
        ["go", "[file a.pdf, which is not at hand here]", "[audio/wav]", "data"],
    )
    answer = Message("assistant", [there(Content.from_text("Hi"), "here")])
    assert rewrite(question, answer)[0] is question
