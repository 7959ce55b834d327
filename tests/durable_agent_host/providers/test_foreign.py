"""A conversation that another provider began, as the provider that goes on can be sent it."""

import copy

from agent_framework import Content, Message

from durable_agent_host.model.provider_item import ITEM, PART_OF, STAMP
from durable_agent_host.providers.cross_provider_history import ReplayTarget, rewrite_for

TARGET = ReplayTarget("here")
PICTURE = Content.from_uri("data:image/png;base64,AA==", media_type="image/png")


def there(content, provider="there"):
    """Stamp a content as an item of a provider."""
    item = copy.copy(content)
    item.additional_properties = {
        **content.additional_properties,
        STAMP: {"provider": provider, "type": "t", "id": "i", ITEM: {}},
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


def test_what_another_service_ran_is_text():
    """A line for each call and each result; a call of the app's tool stays one, and reasoning is omitted."""
    outputs = [Content.from_text("1"), PICTURE, Content.from_hosted_file("f1", name="a.csv")]
    contents = [
        there(Content.from_text_reasoning(text="hm", protected_data="sealed")),
        there(Content.from_code_interpreter_tool_call(call_id="c", inputs=[Content.from_text("print(1)")])),
        Content.from_code_interpreter_tool_result(call_id="c", outputs=outputs, additional_properties={PART_OF: "i"}),
        there(Content.from_search_tool_call("s", tool_name="web_search", arguments={"query": "tea"})),
        there(Content.from_search_tool_result("s", tool_name="web_search", result=[{"title": "Tea"}])),
        there(Content.from_mcp_server_tool_result("m", output=[Content.from_text("page")])),
        there(Content.from_function_call("e", "editor", arguments='{"path": "a"}', informational_only=True)),
        there(Content.from_text("")),
        there(Content.from_text("Done.", annotations=[{"type": "citation", "title": "Tea"}])),
        there(Content.from_function_call("f", "look_up", arguments="{}")),
    ]
    results = [Content.from_function_result(call_id, result="ok") for call_id in ("e", "f")]
    found = rewrite(Message("user", ["go"]), Message("assistant", contents), Message("tool", results))
    assert roles_and_texts(found) == [
        ("user", ["go"]),
        (
            "assistant",
            [
                "[code_interpreter: print(1)]",
                "[code_interpreter result: 1\n[image/png]\n[file a.csv]]",
                '[web_search: {"query": "tea"}]',
                "[web_search result: Tea]",
                "[mcp_server result: page]",
                '[editor: {"path": "a"}]',
                "Done.",
                "function_call",
            ],
        ),
        ("tool", ["function_result"]),
        ("assistant", ["[function result: ok]"]),
    ]


def test_files_and_media_that_the_target_does_not_take_are_named():
    """A file that another service keeps, and a kind of media that the target refuses, are named to it."""
    sound = Content.from_uri("data:audio/wav;base64,AA==", media_type="audio/wav")
    question = Message("user", ["go", Content.from_hosted_file("file-1", name="a.pdf"), sound, PICTURE])
    found = rewrite(question, Message("assistant", [there(Content.from_text("Hi"))]))
    assert roles_and_texts(found)[0] == (
        "user",
        ["go", "[file a.pdf]", "[audio/wav]", "data"],
    )
    answer = Message("assistant", [there(Content.from_text("Hi"), "here")])
    assert rewrite(question, answer)[0] is question
