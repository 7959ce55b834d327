"""Streamed updates to the stored response: how a stream was cut changes nothing, and nothing is lost."""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from agent_framework import AgentResponseUpdate, Content
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.stream.fold import fold_contents, fold_updates, response_as_updates
from practice_model.dialects.responses.event_grammar import stream_events
from tests.durable_agent_host.stream.streams import (
    encode_messages,
    provider,
    updates_of,
)

SOME_TEXT = st.text(min_size=1, max_size=40)


# --- streams of any framework client, without the provider's items -----------------------------------------------


@dataclass
class Fragment:
    """What one call or text of a plain stream is made of."""

    kind: str
    name: str
    text: str


@st.composite
def plain_streams(draw):
    """Texts, calls and code runs of a client that nobody here knows; calls may be mixed, texts stay in order."""
    kinds = st.sampled_from(["text", "text_reasoning", "function_call", "code_interpreter_tool_call", "later"])
    drawn = draw(st.lists(st.tuples(kinds, SOME_TEXT), max_size=6))
    return [Fragment(kind, f"c{number}", text) for number, (kind, text) in enumerate(drawn)]


def contents_of(fragment, cuts):
    """Give a fragment as chunks."""
    if fragment.kind == "later":
        return [Content("later_type", text=fragment.text)]
    texts = fragments(fragment.text, cuts)
    if fragment.kind == "function_call":
        call = partial(Content.from_function_call, fragment.name)
        return [call("f" if not n else "", arguments=text) for n, text in enumerate(texts)]
    if fragment.kind == "code_interpreter_tool_call":
        return [Content(fragment.kind, call_id=fragment.name, inputs=[Content.from_text(text)]) for text in texts]
    return [Content(fragment.kind, text=text) for text in texts]


def fragments(text, cuts):
    """Cut a text at some places."""
    offsets = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[start:end] for start, end in pairwise(offsets)]


def chunks(stream, cuts):
    """Give a plain stream as updates of one content."""
    contents = [content for fragment in stream for content in contents_of(fragment, cuts)]
    return [AgentResponseUpdate(contents=[content], role="assistant", message_id="m") for content in contents]


CUTS = st.lists(st.integers(0, 99), max_size=20)


@given(plain_streams(), CUTS)
def test_plain_streams_obey_the_laws(stream, cuts):
    """Without the provider's items the fold obeys the same laws, and says what was said."""
    updates = chunks(stream, cuts)
    response = fold_updates(updates, provider)
    assert encode_messages(response) == encode_messages(fold_updates(chunks(stream, []), provider))
    assert encode_messages(fold_updates(response_as_updates(response), provider)) == encode_messages(response)
    assert encode_messages(fold_updates(response.to_updates(), provider)) == encode_messages(response)
    texts = [(content.type, text_of(content)) for message in response.messages for content in message.contents]
    assert texts == neighbours_joined(stream)


def text_of(content):
    return content.arguments or "".join(part.text for part in content.inputs or ()) or content.text


def neighbours_joined(stream):
    """Give what a plain stream says: neighbours of one kind of text are one."""
    texts = []
    for fragment in stream:
        kind = "later_type" if fragment.kind == "later" else fragment.kind
        if kind.startswith("text") and texts and texts[-1][0] == kind:
            texts[-1] = kind, texts[-1][1] + fragment.text
        else:
            texts.append((kind, fragment.text))
    return texts


def test_calls_of_parallel_tools_may_be_mixed():
    """Chunks of calls that run into each other become the calls, in the order in which they began."""
    updates = [
        AgentResponseUpdate(role="assistant", contents=[Content.from_function_call(f"c{n % 3}", "f", arguments=f"{n}")])
        for n in range(9)
    ]
    calls = fold_updates(updates, provider).messages[0].contents
    assert [(call.call_id, call.arguments) for call in calls] == [("c0", "036"), ("c1", "147"), ("c2", "258")]


def test_unknown_events_and_contents_are_stored():
    """A content that an unknown event brings, and one of an unknown type, are stored as they came."""
    later = Content("later_type", text="x", additional_properties={"a": [1]})
    other = Content("data", uri="data:text/plain;base64,eA==", media_type="text/plain")

    class Event:
        type = "response.later.delta"
        output_index = 0

    updates = [
        AgentResponseUpdate(role="assistant", contents=[later], raw_representation=Event()),
        AgentResponseUpdate(role="assistant", contents=[other, later]),
    ]
    (message,) = fold_updates(updates, provider).messages
    assert message.contents == [later, other, later]


def test_results_come_behind_their_calls():
    """A hosted tool's result that the stream gives out first stands behind its call."""
    result = Content.from_code_interpreter_tool_result(call_id="ci_1", outputs=[Content.from_text("1")])
    call = Content.from_code_interpreter_tool_call(call_id="ci_1", inputs=[Content.from_text("print(1)")])
    updates = [
        AgentResponseUpdate(role="assistant", contents=[content]) for content in (result, Content.from_text("a"), call)
    ]
    (message,) = fold_updates(updates, provider).messages
    assert message.contents == [Content.from_text("a"), call, result]


def test_several_model_calls_of_a_turn_stay_apart():
    """The items of two model calls, with a tool's result between, are in three messages."""
    call = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "c",
        "name": "f",
        "arguments": "{}",
        "status": "completed",
    }
    text = [{"type": "output_text", "text": "done", "annotations": []}]
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": text}
    bodies = [
        {
            "id": f"resp_{n}",
            "object": "response",
            "created_at": 1,
            "model": "m",
            "status": "completed",
            "output": [item],
        }
        for n, item in enumerate((call, message))
    ]
    first, second = (updates_of(stream_events(body)) for body in bodies)
    between = AgentResponseUpdate(role="tool", contents=[Content.from_function_result("c", result="4")])
    messages = fold_updates([*first, between, *second], provider).messages
    assert [message.role for message in messages] == ["assistant", "tool", "assistant"]
    assert encode_messages(fold_updates([*first, *second], provider).messages) == encode_messages(
        [messages[0], messages[2]]
    )


def test_divided_characters_are_joined():
    """Halves of a character, as services that count in UTF-16 cut them, are the character; a lone half stays."""
    halves = ["a\ud83d", "\ude00b\ud83d", "c"]
    contents = [
        *(Content.from_text(half) for half in halves),
        *(Content.from_function_call("c", "f", arguments=half) for half in halves),
    ]
    updates = [AgentResponseUpdate(role="assistant", contents=[content]) for content in contents]
    text, call = fold_updates(updates, provider).messages[0].contents
    assert (text.text, call.arguments) == ("a😀b\ud83dc", "a😀b\ud83dc")


# --- stored chunk by chunk ---------------------------------------------------------------------------------------


def test_a_script_stored_in_chunks_is_one():
    """Hundreds of chunks are the script once."""
    script = "".join(f"print({n})\n" for n in range(300))
    texts = fragments(script, range(1, 2000, 6))
    stored_chunks = [
        Content.from_code_interpreter_tool_call(
            call_id="ci_1", inputs=[Content.from_text(text)], additional_properties={"sequence_number": n}
        )
        for n, text in enumerate(texts)
    ]
    result = Content.from_code_interpreter_tool_result(call_id="ci_1", outputs=[Content.from_text("0")])
    contents = fold_contents([result, *stored_chunks, Content.from_text("a"), Content.from_text("b")])
    assert [content.type for content in contents] == [
        "code_interpreter_tool_call",
        "code_interpreter_tool_result",
        "text",
    ]
    assert [part.text for part in contents[0].inputs] == [script]
    assert contents[2].text == "ab"
    assert fold_contents(contents) == contents
