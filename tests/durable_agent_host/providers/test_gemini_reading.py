"""How responses of Gemini become contents, and what is said when there are none."""

import json

import pytest
from agent_framework import ChatResponseUpdate, Message

from durable_agent_host.codec.message import encode_message
from durable_agent_host.errors import ProviderError
from durable_agent_host.providers.gemini.part_mapping import to_parts
from durable_agent_host.providers.gemini.provider import GEMINI
from durable_agent_host.providers.gemini.response_reader import ResponseReader, count_tokens
from durable_agent_host.stream.fold import fold_updates

SEAL = "c2VhbGVk"


def chunk(*parts, finish=None, **fields):
    """A chunk of a stream."""
    candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0, **fields}
    return {"candidates": [candidate | ({"finishReason": finish} if finish else {})], "responseId": "r1"}


def chunks_of(parts):
    """A stream with a chunk for each part."""
    return [*(chunk(part) for part in parts), chunk({"text": ""}, finish="STOP")]


def updates_of(chunks):
    """The updates of the hosted client."""
    reader = ResponseReader()
    return [
        ChatResponseUpdate(role="assistant", contents=contents, response_id=reader.response_id)
        for contents in (*map(reader.read, chunks), reader.end())
    ]


def contents_of(chunks):
    """The folded contents."""
    messages = fold_updates(updates_of(chunks), GEMINI).messages
    return [content for message in messages for content in message.contents]


def sent(chunks):
    """The parts that go back."""
    contents = [(content, to_parts(content)) for content in contents_of(chunks)]
    return [part for content, parts in contents for part in ([{"text": content.text}] if parts is None else parts)]


def argument(path, **value):
    """A fragment of a call's arguments."""
    name = {"id": value.pop("id")} if "id" in value else {}
    return {"functionCall": {**name, "partialArgs": [{"jsonPath": path, **value}], "willContinue": True}}


def test_arguments_that_come_in_fragments_are_one_call():
    """Texts grow, other values are told once, at any depth, also where calls are interleaved."""
    fragments = [
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
    f, g = sorted(contents_of(chunks_of(fragments)), key=lambda content: content.call_id)
    assert (f.name, f.arguments) == ("f", {"place": {"city": "Boston"}, "days": [None, 2]})
    assert (g.name, g.arguments) == ("g", {"a b": False})
    assert to_parts(f)[0]["thoughtSignature"] == SEAL


@pytest.mark.parametrize(
    ("response", "message", "retryable"),
    [
        (
            {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}},
            "blocked the request .*: PROHIBITED_CONTENT",
            False,
        ),
        ({"promptFeedback": {"blockReason": "NEW", "blockReasonMessage": "Why."}}, "NEW: Why", False),
        (chunk(finish="MALFORMED_FUNCTION_CALL", finishMessage="call:f{"), "call:f{", True),
        (chunk(finish="OTHER"), "no reason", True),
    ],
)
def test_the_reason_of_a_missing_response_is_reported(response, message, retryable):
    """Blocked prompts and failed answers fail the call, in the service's words and with what to do."""
    with pytest.raises(ProviderError, match=message) as error_info:
        ResponseReader().read(response)
    assert error_info.value.retryable is retryable


def grounded_chunk(*parts):
    """A chunk with the sources of an answer."""
    segment = {"startIndex": 8, "endIndex": 13, "text": "Paris"}
    supports = [{"segment": segment, "groundingChunkIndices": [0, 7]}]
    chunks = [{"web": {"uri": "https://a.example", "title": "A"}}, {"retrievedContext": {"title": "B"}}]
    metadata = {"groundingChunks": chunks, "groundingSupports": supports, "webSearchQueries": ["capital"]}
    metadata["searchEntryPoint"] = {"renderedContent": "<p>"}
    return chunk(*parts, finish="STOP", groundingMetadata=metadata, urlContextMetadata={"urlMetadata": [1]}, newField=2)


def test_sources_are_citations_and_the_search_is_stored():
    """Regions count characters, not bytes; what the service said is kept verbatim, and once."""
    chunks = [chunk({"text": "Größe "}), grounded_chunk({"text": "Paris."}, {"text": "", "thoughtSignature": SEAL})]
    text, search_call, found, metadata = contents_of(chunks)
    assert text.text == "Größe Paris."
    assert [(citation.get("url"), citation.get("title"), citation.get("snippet")) for citation in text.annotations] == [
        ("https://a.example", "A", "Paris"),
        (None, "B", None),
    ]
    (region,) = text.annotations[0]["annotated_regions"]
    assert text.text[region["start_index"] : region["end_index"]] == "Paris"
    assert (search_call.type, search_call.tool_name) == ("search_tool_call", "web_search")
    assert search_call.arguments == {"queries": ["capital"]}
    assert found.call_id == search_call.call_id
    assert found.result["searchEntryPoint"] == {"renderedContent": "<p>"}
    item = metadata.additional_properties["durable_agent_host.item"]["item"]
    assert (item["urlContextMetadata"], item["newField"]) == ({"urlMetadata": [1]}, 2)
    assert sent(chunks) == [{"text": "Größe Paris."}, {"text": "", "thoughtSignature": SEAL}]
    assert json.dumps(encode_message(Message("assistant", contents_of(chunks)))).count("<p>") == 1


def candidate(index, text, **more):
    """A candidate as a chunk has it."""
    return {"index": index, "content": {"role": "model", "parts": [{"text": text}]}, **more}


def test_only_the_first_candidate_is_the_response():
    """However the chunks bring them: the others are left out, as the framework's own client leaves them."""
    reader = ResponseReader()
    chunks = [
        [candidate(1, "No")],
        [candidate(0, "Ye"), candidate(1, ", not so.")],
        [candidate(0, "s.", finishReason="STOP")],
        [candidate(1, "", finishReason="STOP")],
    ]
    contents = [content for chunk in chunks for content in reader.read({"candidates": chunk})] + reader.end()
    assert "".join(content.text or "" for content in contents) == "Yes."


def test_output_tokens_include_thoughts_and_input_tokens_include_tools_of_the_service():
    """As with other services; what is not reported is not counted."""
    usage = {"promptTokenCount": 5, "candidatesTokenCount": 3, "thoughtsTokenCount": 100, "totalTokenCount": 115}
    assert count_tokens(usage | {"toolUsePromptTokenCount": 7}) == {
        "input_token_count": 12,
        "output_token_count": 103,
        "total_token_count": 115,
        "reasoning_output_token_count": 100,
    }
    assert count_tokens({"promptTokenCount": 5, "trafficType": "ON_DEMAND"}) == {"input_token_count": 5}
