"""How responses of Gemini become contents: the same wherever a stream is cut, and told clearly when there are none."""

import json
import random

import pytest
from agent_framework import AgentResponseUpdate, ChatResponseUpdate, Message

from durable_agent_host.codec.message import encode_message
from durable_agent_host.errors import ProviderError
from durable_agent_host.providers.gemini.part_mapping import to_parts
from durable_agent_host.providers.gemini.provider import GEMINI
from durable_agent_host.providers.gemini.response_reader import ResponseReader
from durable_agent_host.stream.fold import Fold, fold_part, fold_updates, response_as_updates
from durable_agent_host.stream.live_events import LiveEvents
from tests.durable_agent_host.gemini_lab import accepted_parts
from tests.kit import RECORDINGS

SEAL, OTHER = "c2VhbGVk", "b3RoZXI="
CODE = {"executableCode": {"language": "PYTHON", "code": "print(1)", "id": "c1"}, "thoughtSignature": SEAL}
RESULT = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n", "id": "c1"}}
IMAGE = {"inlineData": {"mimeType": "image/png", "data": "YWJj"}, "thoughtSignature": OTHER}


def chunk(*parts, finish=None, **fields):
    """A chunk of a stream."""
    candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0, **fields}
    return {"candidates": [candidate | ({"finishReason": finish} if finish else {})], "responseId": "r1"}


def streamed(parts):
    """A stream with a chunk for each part."""
    return [*(chunk(part) for part in parts), chunk({"text": ""}, finish="STOP")]


def updates_of(chunks):
    """The updates of the hosted client."""
    reader = ResponseReader(streaming=True)
    return [
        ChatResponseUpdate(role="assistant", contents=reader.read(one), response_id=reader.response_id)
        for one in chunks
    ]


def contents_of(chunks):
    """The folded contents."""
    messages = fold_updates(updates_of(chunks), GEMINI).messages
    return [content for message in messages for content in message.contents]


def sent(chunks):
    """The parts that go back."""
    kept = [(one, to_parts(one)) for one in contents_of(chunks)]
    return [part for one, parts in kept for part in ([neutral_part(one)] if parts is None else parts)]


def neutral_part(content):
    """The part of a content that says it all."""
    if content.type == "text":
        return {"text": content.text}
    return {"functionCall": {"name": content.name, "args": content.arguments, "id": content.call_id}}


def stored(response):
    """The stored messages, ids that are made up apart."""
    written = [encode_message(message) for message in response.messages]
    names = [one.call_id for message in response.messages for one in message.contents if one.type == "function_call"]
    text = json.dumps(written, sort_keys=True)
    for number, name in enumerate(name for name in names if name.startswith("tool-call-")):
        text = text.replace(name, f"made-up-{number}")
    return text


STREAMS = {
    "code with an image": [{"text": "I run "}, {"text": "it."}, CODE, RESULT, IMAGE, {"text": "Done."}],
    "code without ids": [{"executableCode": {"code": "1"}}, {"codeExecutionResult": {"outcome": "OUTCOME_FAILED"}}] * 2,
    "a result before its code": [RESULT, CODE, {"text": "x"}],
    "signed texts": [{"text": "a", "thoughtSignature": SEAL}, {"text": "b"}, {"text": "", "thoughtSignature": OTHER}],
    "thoughts": [{"text": "hm ", "thought": True}, {"text": "hm", "thought": True}, {"text": "so"}],
    "unknown": [{"hologram": {"depth": 3}}, {"text": "x"}, {"text": 7}, {"executableCode": "x"}, {"thought": True}],
    "calls": [
        {"functionCall": {"name": "f", "args": {"a": 1}, "id": "f1"}, "thoughtSignature": SEAL},
        {"functionCall": {"name": "f", "args": {"a": 2}, "id": "f2"}},
        {"functionCall": {"name": "g", "id": "f3", "urgency": 9}},
    ],
}


def recorded():
    """The recorded streams."""
    paths = sorted((RECORDINGS / "gemini").rglob("*.jsonl"))
    return {path.stem: [json.loads(line)["data"] for line in path.read_text().splitlines()] for path in paths}


def cases():
    return {name: streamed(parts) for name, parts in STREAMS.items()} | recorded()


def cut_elsewhere(chunks, seed):
    """Cut texts at other places, and put parts of several chunks into one."""
    draw = random.Random(seed)
    pieces = []
    for one in chunks:
        rest = {name: value for name, value in one["candidates"][0].items() if name != "content"}
        for part in one["candidates"][0].get("content", {}).get("parts", []):
            text = part.get("text")
            if isinstance(text, str) and len(text) > 1 and part.keys() <= {"text", "thought"}:
                place = draw.randint(1, len(text) - 1)
                pieces += [({**part, "text": half}, {}) for half in (text[:place], text[place:])]
            else:
                pieces.append((part, {}))
        if pieces:
            pieces[-1] = (pieces[-1][0], rest)
    whole = [{**chunks[-1], "candidates": [{"content": {"parts": [part]}, **rest}]} for part, rest in pieces]
    for place in range(len(whole) - 1, 0, -1):
        if draw.random() < 0.3 and not pieces[place - 1][1].keys() - {"index"}:
            parts = whole[place - 1]["candidates"][0]["content"]["parts"]
            candidate = whole[place]["candidates"][0]
            candidate["content"]["parts"] = parts + candidate["content"]["parts"]
            del whole[place - 1]
    return whole


@pytest.mark.parametrize("name", cases())
def test_a_stream_that_is_cut_elsewhere_is_stored_the_same(name):
    """Wherever the service cuts texts, and however many parts it puts into a chunk."""
    chunks = cases()[name]
    whole = stored(fold_updates(updates_of(chunks), GEMINI))
    for seed in range(5):
        assert stored(fold_updates(updates_of(cut_elsewhere(chunks, seed)), GEMINI)) == whole


@pytest.mark.parametrize("name", cases())
def test_folding_in_parts_changes_nothing(name):
    """Parts folded first, and parts of those, and what is folded already, give the fold of the whole."""
    updates = updates_of(cases()[name])
    response = fold_updates(updates, GEMINI)
    whole = stored(response)
    draw = random.Random(name)
    for _ in range(4):
        first, second = sorted(draw.randint(0, len(updates)) for _ in range(2))
        a, b, c = (fold_part(part, GEMINI) for part in (updates[:first], updates[first:second], updates[second:]))
        assert stored(fold_updates([*a, *b, *c], GEMINI)) == whole
        assert stored(fold_updates([*fold_part([*a, *b], GEMINI), *updates[second:]], GEMINI)) == whole
    assert stored(fold_updates(response_as_updates(response), GEMINI)) == whole


@pytest.mark.parametrize("name", cases())
def test_every_part_of_a_stream_goes_back_as_it_was(name):
    """Nothing is dropped and nothing is changed, but for ids that the service did not give."""
    chunks = cases()[name]
    given = [part for one in chunks for part in one["candidates"][0].get("content", {}).get("parts", [])]
    if name == "fn-streamed-arguments":
        calls = [part["functionCall"] for part in sent(chunks)]
        assert [(one["name"], one["args"]) for one in calls] == [
            ("getWeather", {"location": "Boston"}),
            ("getWeather", {"location": "San Francisco"}),
        ]
        assert sent(chunks)[0]["thoughtSignature"] == given[0]["thoughtSignature"]
        return
    expected = accepted_parts(given)
    if name == "a result before its code":
        expected = [CODE, RESULT, *expected[2:]]  # the API takes a result behind its code
    assert without_made_up_ids(sent(chunks)) == expected


def without_made_up_ids(parts):
    """Leave the ids out that were made up for calls without one."""
    hook = lambda one: {n: v for n, v in one.items() if n != "id" or not str(v).startswith("tool-call-")}  # noqa: E731
    return json.loads(json.dumps(parts), object_hook=hook)


def test_code_is_no_answer_and_has_its_language_outputs_and_outcome():
    """A run is a call and a result with one id; an image that it made is one of its outputs."""
    call, result, text = contents_of(streamed([CODE, RESULT, IMAGE, {"text": "Done."}]))
    assert (call.type, call.call_id, call.inputs[0].text) == ("code_interpreter_tool_call", "c1", "print(1)")
    assert call.inputs[0].additional_properties["language"] == "python"
    assert (result.type, result.call_id, result.status) == ("code_interpreter_tool_result", "c1", "completed")
    assert [(one.type, one.text or one.uri) for one in result.outputs] == [
        ("text", "1\n"),
        ("data", "data:image/png;base64,YWJj"),
    ]
    assert text.text == "Done."
    failed = {"codeExecutionResult": {"outcome": "OUTCOME_DEADLINE_EXCEEDED", "output": "too long"}}
    _, result, _ = contents_of(streamed([{"executableCode": {"code": "1"}}, failed, {"text": "x"}]))
    (error,) = result.outputs
    assert (result.status, error.type, error.message) == ("failed", "error", "too long")


def test_clients_hear_of_code_apart_from_the_answer():
    """Code and its output are events of a tool, and none of the answer's text."""
    live = LiveEvents()
    told = []
    for one in updates_of(streamed([{"text": "Look. "}, CODE, RESULT, {"text": "Done."}])):
        told += live.feed(AgentResponseUpdate(contents=one.contents, role=one.role, response_id=one.response_id))
    kinds = [event.event for event in told]
    assert kinds == ["message.delta", "tool.started", "tool.delta", "tool.completed", "message.delta"]
    assert "".join(event.data["text"] for event in told if event.event == "message.delta") == "Look.  Done."


def argument(path, **value):
    """A piece of a call's arguments."""
    name = {"id": value.pop("id")} if "id" in value else {}
    return {"functionCall": {**name, "partialArgs": [{"jsonPath": path, **value}], "willContinue": True}}


def test_arguments_that_come_in_pieces_are_one_call():
    """Texts grow, other values are told once, at any depth, also where calls are interleaved."""
    pieces = [
        {"functionCall": {"name": "f", "id": "a", "willContinue": True}, "thoughtSignature": SEAL},
        argument("$.place.city", stringValue="Bos", willContinue=True),
        {"functionCall": {"name": "g", "id": "b", "willContinue": True}},
        {
            "functionCall": {
                "id": "a",
                "partialArgs": [{"jsonPath": "$.days[1]", "numberValue": 2}],
                "willContinue": True,
            }
        },
        {
            "functionCall": {
                "id": "a",
                "partialArgs": [{"jsonPath": "$.days[0]", "nullValue": "NULL_VALUE"}],
                "willContinue": True,
            }
        },
        {"functionCall": {"id": "b", "partialArgs": [{"jsonPath": "$['a b']", "boolValue": False}]}},
        argument("$.place.city", stringValue="ton"),
        {"functionCall": {"id": "a"}},
    ]
    f, g = sorted(contents_of(streamed(pieces)), key=lambda one: one.call_id)
    assert (f.name, f.arguments) == ("f", {"place": {"city": "Boston"}, "days": [None, 2]})
    assert (g.name, g.arguments) == ("g", {"a b": False})
    assert to_parts(f)[0]["thoughtSignature"] == SEAL


@pytest.mark.parametrize(
    ("response", "said", "retryable"),
    [
        ({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}, "blocked the prompt: PROHIBITED_CONTENT", False),
        ({"promptFeedback": {"blockReason": "NEW", "blockReasonMessage": "Why."}}, "NEW: Why", False),
        (chunk({"text": "a"}, finish="SAFETY"), "safety filters", False),
        (chunk(finish="RECITATION"), "RECITATION", False),
        (chunk(finish="MALFORMED_FUNCTION_CALL", finishMessage="call:f{"), "call:f{", True),
        (chunk(finish="OTHER"), "no reason", True),
    ],
)
def test_why_there_is_no_answer_is_told(response, said, retryable):
    """Blocked prompts and stopped answers fail the call, in the service's words and with what to do."""
    with pytest.raises(ProviderError, match=said) as raised:
        ResponseReader(streaming=True).read(response)
    assert raised.value.retryable is retryable


def grounded(*parts):
    """A chunk with the sources of an answer."""
    segment = {"startIndex": 8, "endIndex": 13, "text": "Paris"}
    supports = [{"segment": segment, "groundingChunkIndices": [0, 7]}]
    chunks = [{"web": {"uri": "https://a.example", "title": "A"}}, {"retrievedContext": {"title": "B"}}]
    metadata = {"groundingChunks": chunks, "groundingSupports": supports, "webSearchQueries": ["capital"]}
    metadata["searchEntryPoint"] = {"renderedContent": "<p>"}
    return chunk(*parts, finish="STOP", groundingMetadata=metadata, urlContextMetadata={"urlMetadata": [1]}, newField=2)


def test_sources_are_citations_and_the_search_is_told():
    """Regions count characters, not bytes; what the service said is kept verbatim, and once."""
    chunks = [chunk({"text": "Größe "}), grounded({"text": "Paris."}, {"text": "", "thoughtSignature": SEAL})]
    text, asked, found, beside = contents_of(chunks)
    assert text.text == "Größe Paris."
    assert [(one.get("url"), one.get("title"), one.get("snippet")) for one in text.annotations] == [
        ("https://a.example", "A", "Paris"),
        (None, "B", None),
    ]
    (region,) = text.annotations[0]["annotated_regions"]
    assert text.text[region["start_index"] : region["end_index"]] == "Paris"
    assert (asked.type, asked.tool_name) == ("search_tool_call", "web_search")
    assert asked.arguments == {"queries": ["capital"]}
    assert found.call_id == asked.call_id
    assert found.result["searchEntryPoint"] == {"renderedContent": "<p>"}
    kept = beside.additional_properties["durable_agent_host.item"]
    assert (kept["urlContextMetadata"], kept["newField"]) == ({"urlMetadata": [1]}, 2)
    assert sent(chunks) == [{"text": "Größe Paris."}, {"text": "", "thoughtSignature": SEAL}]
    assert json.dumps(encode_message(Message("assistant", contents_of(chunks)))).count("<p>") == 1


def test_a_whole_response_is_read_as_its_stream():
    """Without a stream the contents are the same."""
    parts = [{"text": "I run it."}, CODE, RESULT, IMAGE, {"text": "Done.", "thoughtSignature": SEAL}]
    contents = ResponseReader(streaming=False).read(chunk(*parts, finish="STOP"))
    update = ChatResponseUpdate(role="assistant", contents=contents, response_id="r1")
    assert stored(Fold([update], GEMINI).response()) == stored(fold_updates(updates_of(streamed(parts)), GEMINI))


def candidate(index, text, **more):
    """A candidate as a chunk has it."""
    return {"index": index, "content": {"role": "model", "parts": [{"text": text}]}, **more}


def test_candidates_besides_the_answer_are_kept_and_not_mixed_with_it():
    """However the chunks bring them: the first is the answer, the others stand beside it."""
    reader = ResponseReader(streaming=True)
    chunks = [
        [candidate(1, "No")],
        [candidate(0, "Ye"), candidate(1, ", not so.")],
        [candidate(0, "s.", finishReason="STOP")],
        [candidate(1, "", finishReason="STOP")],
    ]
    contents = [content for chunk in chunks for content in reader.read({"candidates": chunk})]
    assert "".join(content.text or "" for content in contents) == "Yes."
    kept = json.dumps([content.to_dict() for content in contents])
    assert kept.count("No, not so.") == 1
    assert all(to_parts(content) == [] for content in contents if not content.text)
