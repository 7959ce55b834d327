"""What is sent of histories that lost something: items without their shape, ids that are none, images, cut texts."""

import pytest
from agent_framework import Content, Message
from agent_framework_openai import OpenAIChatClient

from durable_agent_host.providers.openai.item_mapping import complete_item
from durable_agent_host.providers.openai.provider import RESPONSES
from durable_agent_host.providers.openai.request_items import with_valid_ids
from durable_agent_host.providers.services import SERVICES, UNKNOWN
from practice_model.rules.requests import Rules, check_request
from practice_model.store import Store

OPENAI = SERVICES[0]
CODE = {
    "type": "code_interpreter_call",
    "id": "ci_1",
    "code": "1",
    "container_id": "cntr_1",
    "outputs": [],
    "status": "completed",
}
SEARCH = {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "x"}, "status": "completed"}
MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "hi", "annotations": []}],
}


async def sent(*messages, **options):
    """Give what is sent before the new message; a strict model accepts it."""
    client = RESPONSES.adapt(OpenAIChatClient(model="m", api_key="k"))
    options_json = await client._prepare_options([*messages, Message("user", ["go on"])], {"store": False} | options)
    body = {"model": "m", "input": options_json["input"], "store": False}
    assert check_request(body, Store(), Rules(is_strict=True), now=0.0) is None
    return options_json["input"][:-1]


def response(*items):
    return [content for item in items for content in complete_item([], item)]


async def test_an_item_that_lost_a_content_is_sent_as_what_is_left():
    """A code run without its result is no item any more; the model reads its code as text."""
    contents = [
        content for content in response(CODE, SEARCH, MESSAGE) if content.type != "code_interpreter_tool_result"
    ]
    text, *items = await sent(Message("assistant", contents))
    assert text["content"][0]["text"] == "[code_interpreter: 1]"
    assert [item["type"] for item in items] == ["web_search_call", "message"]


async def test_reasoning_before_something_that_is_not_sent_stays_out():
    """A hosted call that lost its stamp is not sent by the framework, and its reasoning would stand alone."""
    thought = Content("text_reasoning", id="rs_1", text="hm", protected_data="sealed")
    run = Content("code_interpreter_tool_call", call_id="ci_1", inputs=[Content.from_text("1")])
    client = RESPONSES.adapt(OpenAIChatClient(model="m", api_key="k"))
    message = Message("assistant", [thought, run, Content.from_text("hi")])
    options = await client._prepare_options([message, Message("user", ["go on"])], {"store": False})
    assert [item["type"] for item in options["input"]] == ["message", "message"]


async def test_reasoning_before_a_text_that_was_cut_off_stays_out():
    """A cancelled turn keeps the beginning of a message, which is no item and has no id; nobody refuses it."""
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
    client = RESPONSES.adapt(OpenAIChatClient(model="m", api_key="k"))
    message = Message("assistant", [*response(thought), Content.from_text("let me")])
    options = await client._prepare_options([message, Message("user", ["go on"])], {"store": False})
    body = {"model": "m", "input": options["input"], "store": False}
    assert check_request(body, Store(), Rules(is_strict=True), now=0.0) is None
    assert [item["type"] for item in options["input"]] == ["message", "message"]


def test_an_item_that_comes_twice_is_sent_once():
    """Messages lose the id the second time, since their words may differ; other items are the same item."""
    items = with_valid_ids([CODE, MESSAGE, CODE, MESSAGE], UNKNOWN)
    assert items == [CODE, MESSAGE, {name: value for name, value in MESSAGE.items() if name != "id"}]


@pytest.mark.parametrize("item_id", ["msg_" + "x" * 70, "msg ü", ""])
def test_an_id_that_the_service_refuses_is_not_sent(item_id):
    """A message goes without it; an item that has to have one stays out."""
    assert "id" not in with_valid_ids([MESSAGE | {"id": item_id}], OPENAI)[0]
    assert with_valid_ids([CODE | {"id": item_id}], OPENAI) == []
    thought = {"type": "reasoning", "encrypted_content": "sealed"}
    assert with_valid_ids([thought | {"id": item_id}], OPENAI) == [thought]


@pytest.mark.parametrize("name", ["xAI", "OpenRouter", "LiteLLM", "unknown"])
def test_other_services_get_the_ids_that_they_gave(name):
    """However long, and several items under the same; an item that comes twice is sent once."""
    item_id = "tco_" + "b" * 80
    items = [{"type": "reasoning", "id": item_id, "encrypted_content": text} for text in ("first", "second")]
    items.append({"type": "web_search_call", "id": item_id + "1", "action": {"type": "search", "query": "q"}})
    (service,) = (row for row in SERVICES if row.name == name)
    assert with_valid_ids([*items, items[0]], service) == items


@pytest.mark.parametrize(
    ("uri", "is_sent"),
    [
        ("https://example.com/thing", {"type": "input_text", "text": "https://example.com/thing"}),
        ("https://example.com/a.png?x=1", {"type": "input_image", "image_url": "https://example.com/a.png?x=1"}),
        ("data:image/png;base64,cG5n", {"type": "input_image", "image_url": "data:image/png;base64,cG5n"}),
    ],
)
async def test_a_link_without_a_media_type_is_a_picture_or_a_text(uri, is_sent):
    """The framework's client refuses it; its name or its data say what it is. The argument stays as it was."""
    link = Content("uri", uri=uri)
    call = Content.from_function_call("call_1", "look", arguments="{}")
    result = Content.from_function_result("call_1", result=[Content.from_text("see"), link])
    question, _, output = await sent(Message("user", [link]), Message("assistant", [call]), Message("tool", [result]))
    assert is_sent.items() <= question["content"][0].items()
    if "text" in is_sent:
        assert output["output"] == f"see\n{uri}"
    else:
        assert is_sent.items() <= output["output"][1].items()
    assert link.media_type is None
