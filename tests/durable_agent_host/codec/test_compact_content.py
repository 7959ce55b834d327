"""Live contents have the same compact form as their JSON in full, and come back the same."""

import copy
import json

import pytest
from agent_framework import AgentResponse, Content, Message
from hypothesis import assume, given
from hypothesis import strategies as st

from durable_agent_host.codec.compact_content import CompactContents, is_same_json
from durable_agent_host.codec.compact_entry import pack_entry, unpack_entry
from durable_agent_host.codec.content import decode_content, encode_content
from durable_agent_host.codec.message import (
    decode_message,
    decode_messages,
    encode_message,
    encode_response_entry,
)
from durable_agent_host.model.provider_item import STAMP
from tests.durable_agent_host.golden import golden
from tests.durable_agent_host.samples import CONTENTS, json_objects, json_values, properties

AT = "2026-11-21T05:44:59.552365+00:00"
IDENTITY = {"fc_id": "fc_1", "output_index": 0, "openai": {"item_id": "fc_1", "output_index": 0}}
LOGPROBS = {"logprobs": [], "openai": {"logprobs": []}}
CALL_STAMP = {"provider": "openai", "type": "function_call", "id": "fc_1"}

ids = st.sampled_from(["fc_1", "msg_1", "rs_1", "", "x", 1, True, None, "1"])
names = st.sampled_from(["item_id", "fc_id", "output_index", "logprobs", "openai", STAMP, "$content", "$plain", "id"])
loose = st.dictionaries(names, ids | json_values, max_size=4)


@st.composite
def twinned(draw):
    """Properties as the OpenAI client sets them, and nearly so."""
    inner = draw(loose)
    beside = {("fc_id" if name == "item_id" and draw(st.booleans()) else name): value for name, value in inner.items()}
    return {"openai": inner, **copy.deepcopy(beside), **draw(st.just({}) | loose)}


stamps = st.builds(
    lambda *values: dict(zip(("provider", "type", "id"), values, strict=True)),
    st.sampled_from(["openai", "other"]),
    st.sampled_from(["function_call", "message", "reasoning", "mcp_call"]),
    ids,
)
held = st.builds(
    lambda held, stamp: copy.deepcopy(held | stamp),
    st.sampled_from([{}, IDENTITY, LOGPROBS]) | twinned() | properties,
    st.just({}) | st.builds(lambda stamp: {STAMP: stamp}, st.just(CALL_STAMP) | stamps | json_values),
)
call_ids = st.sampled_from(["call_1", "call_2", None])
texts = st.sampled_from(["hi", "", "größer 😀"]) | st.text(max_size=5)
arguments = st.one_of(
    texts,
    st.none(),
    json_objects,
    st.builds(json.dumps, json_objects),
    st.builds(lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False), json_objects),
)


def made(content_type, held, **fields):
    """Make a content, with marks as they are: the constructor would change some."""
    content = Content(content_type, **fields)
    content.additional_properties = held
    return content


annotations = st.none() | st.just([]) | st.just([{"type": "citation", "title": "a", "additional_properties": {}}])
items = st.none() | st.lists(st.builds(Content.from_text, texts), max_size=2)
contents = st.one_of(
    st.builds(lambda held, text, notes: made("text", held, text=text, annotations=notes), held, texts, annotations),
    st.builds(
        lambda held, text, own, sealed: made("text_reasoning", held, text=text, id=own, protected_data=sealed),
        held,
        texts | st.none(),
        st.sampled_from(["rs_1", None]),
        st.sampled_from(["gAAA", None]),
    ),
    st.builds(
        lambda held, call_id, arguments, own, hosted: made(
            "function_call", held, call_id=call_id, name="echo", arguments=arguments, id=own, hosted=hosted
        ),
        held,
        call_ids,
        arguments,
        st.sampled_from(["af-1", None]),
        st.booleans(),
    ),
    st.builds(
        lambda held, call_id, result, items, own, fault: made(
            "function_result", held, call_id=call_id, result=result, items=items, id=own, exception=fault
        ),
        held,
        call_ids,
        texts | json_values,
        items,
        st.sampled_from(["af-1", None]),
        st.sampled_from(["ValueError: x", None]),
    ),
    st.builds(lambda call_id, text: Content.from_function_result(call_id, result=text), call_ids, texts),
    st.sampled_from([content for samples in CONTENTS.values() for content in samples]).map(copy.deepcopy),
)
messages = st.lists(
    st.builds(
        lambda contents, author, own, held: Message(
            "assistant", contents, author_name=author, message_id=own, additional_properties=held
        ),
        st.lists(contents, max_size=4),
        st.sampled_from([None, "a"]),
        st.sampled_from([None, "m"]),
        st.just({}) | properties,
    ),
    max_size=3,
)


def in_full(said):
    """Write a response with each extension in its place."""
    return {
        "$type": "response",
        "correlationId": "t",
        "createdAt": AT,
        "messages": [encode_message(message, created_at=AT) for message in said],
    }


def shape(value):
    """Take a value apart, to the types in it; contents and messages to their attributes."""
    if isinstance(value, Content | Message):
        return type(value), {name: shape(inner) for name, inner in vars(value).items()}
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    return type(value), str(value)


def outcome(read):
    """Give what was read, or that it could not be."""
    try:
        return shape(read())
    except Exception:  # noqa: BLE001 - both ways must fail, whatever the reason
        return "refused"


def mutables(value):
    """Name all that could be changed in a value."""
    if isinstance(value, Content | Message):
        value = vars(value)
    if isinstance(value, dict | list):
        yield id(value)
        for inner in value.values() if isinstance(value, dict) else value:
            yield from mutables(inner)


@given(messages)
def test_a_response_is_written_as_its_full_form_is_packed(said):
    """What a response is written to is the short form of all that there is to say of it, and gives that back."""
    before = shape(said)
    written = encode_response_entry("t", AgentResponse(messages=said), created_at=AT)
    assert shape(said) == before
    assert is_same_json(written, pack_entry(in_full(said)))
    assert is_same_json(unpack_entry(json.loads(json.dumps(written))), json.loads(json.dumps(in_full(said))))


@given(messages)
def test_a_response_is_read_as_its_full_form_is(said):
    """The messages of an entry are those that its full form has, to each attribute."""
    written = json.loads(json.dumps(encode_response_entry("t", AgentResponse(messages=said), created_at=AT)))
    both = [decode_message(message) for message in unpack_entry(written)["messages"]]
    assert shape(decode_messages([written])) == shape(both)
    assert [message.contents for message in both] == [message.contents for message in said]


@given(messages)
def test_what_was_read_shares_nothing(said):
    """Nothing in the messages is part of the stored entry, or of another message."""
    written = json.loads(json.dumps(encode_response_entry("t", AgentResponse(messages=said), created_at=AT)))
    read = decode_messages([written])
    again = decode_messages([written])
    seen = [*mutables(read), *mutables(again), *mutables(written)]
    assert len(seen) == len(set(seen))


@given(messages)
def test_what_was_written_shares_nothing_with_the_live_contents(said):
    """A change of a live content after it was written does not change what is stored."""
    written = encode_response_entry("t", AgentResponse(messages=said), created_at=AT)
    assert not set(mutables(said)) & set(mutables(written))


ENTRIES = [
    entry
    for name in ("session-v1", "session-v1-packed", "session-v1-unknown-parts", "session-dotnet-1.1")
    for entry in golden(name)["data"]["conversationHistory"]
    if entry["$type"] in ("request", "response")
]
odd = (
    json_values
    | ids
    | st.sampled_from(["compact", "object", 0, 0.0, False, {}, [], {"logprobs": []}, {"$plain": {}}, CALL_STAMP])
).map(copy.deepcopy)  # what is put into an entry may be changed there


@given(
    st.sampled_from(ENTRIES)
    | st.builds(lambda said: encode_response_entry("t", AgentResponse(messages=said), created_at=AT), messages),
    st.data(),
)
def test_damaged_entries_are_read_as_their_full_form_is(entry, data):
    """Whatever stands in an entry, known or not, is read as its full form is, or is refused as that is."""
    entry = json.loads(json.dumps(entry))
    for _ in range(data.draw(st.integers(1, 3))):
        spoil(entry, data)
    assume(all(isinstance(message.get("contents"), list) for message in entry["messages"] if isinstance(message, dict)))
    before = copy.deepcopy(entry)
    one = outcome(lambda: decode_messages([entry]))
    two = outcome(lambda: [decode_message(message) for message in unpack_entry(entry)["messages"]])
    assert one == two
    assert is_same_json(entry, before)


def spoil(value, data):
    """Change one place somewhere in the messages or parts of an entry."""
    extension = value.get("extensionData", {}).get("durableAgentHost", {})
    value = data.draw(st.sampled_from([value.get("messages", []), extension.get("parts", {})]))
    while value:
        name = data.draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
        if isinstance(value[name], dict | list) and value[name] and data.draw(st.integers(0, 4)):
            value = value[name]
            continue
        if isinstance(value, dict) and data.draw(st.booleans()):
            name = data.draw(names | st.sampled_from(["call", "items", "item", "hosted", "argumentsForm", "newer"]))
        if name in value and data.draw(st.booleans()):
            del value[name]
        elif isinstance(value, dict):
            value[name] = data.draw(odd)
        else:
            value.insert(name, data.draw(odd))
        return


USUAL = [
    pytest.param(content, id=f"{content_type}-{number}")
    for content_type in ("text", "text_reasoning", "function_call", "function_result", "uri", "data", "error")
    for number, content in enumerate(CONTENTS[content_type])
    if not (content.informational_only or content.server_name or content.file_id)
]


@pytest.mark.parametrize("content", USUAL)
def test_usual_contents_have_the_compact_form_of_their_json(content):
    """Texts, reasoning, calls, results, files and errors are packed alike, live and as JSON, and read alike."""
    short, part = CompactContents().encode(content)
    assert is_same_json([short, part], list(CompactContents().pack(encode_content(content))))
    read = CompactContents().decode(json.loads(json.dumps(short)), json.loads(json.dumps(part)))
    assert shape(read) == shape(decode_content(CompactContents().unpack(short, part)))


def test_messages_are_what_the_constructor_makes():
    """A message that was read has the attributes of one that was made."""
    made = Message("user", [Content.from_text("hi")], author_name="a", message_id="m", additional_properties={"b": 1})
    assert shape(decode_message(encode_message(made, created_at=None))) == shape(made)
    assert shape(decode_message({"role": "user", "contents": []})) == shape(Message("user", []))
