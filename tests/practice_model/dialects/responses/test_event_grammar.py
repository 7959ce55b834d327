"""Every stream that the practice model makes follows the grammar and fits the openai package's types."""

import json

import pytest
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from practice_model.dialects.responses import event_grammar, items, response_object, sealed
from practice_model.dialects.responses.ids import IdGenerator
from practice_model.dialects.responses.stream_check import find_stream_violations
from practice_model.play import analyst

EVENT = TypeAdapter(ResponseStreamEvent)


def build(*output, **body):
    request = {"model": "practice", "input": "Hello", **body}
    return response_object.build_completed(request, response_id="resp_1", created_at=1, output=output, transcript=[])


def every_kind_of_item():
    id_generator = IdGenerator("every")
    text, citations = items.cite_files(id_generator, "Two files.", "cntr_1", ["b.csv", "a.csv"])
    return [
        items.build_reasoning(id_generator, "A thought of some length", is_encrypted=True),
        items.build_reasoning(id_generator, "", is_encrypted=False),
        items.build_message(id_generator, "Let me see.", phase="commentary"),
        items.build_code_call(
            id_generator, "print(1)\n" * 20, "cntr_1", logs="1\n", has_image=True, include_outputs=True
        ),
        items.build_function_call(id_generator, "echo", {"text": "“quoted” and \n new"}),
        items.build_function_call(id_generator, "nothing", {}),
        items.build_message(id_generator, text, citations),
        items.build_message(id_generator, ""),
    ]


def endings():
    whole = build(*every_kind_of_item())
    failure = {"code": "server_error", "message": "It broke."}
    return {
        "completed": whole,
        "background": build(background=True),
        "incomplete": response_object.build_incomplete(whole, "max_output_tokens"),
        "failed": response_object.build_failed(build(), failure),
        "failed after items": response_object.build_failed(whole, failure),
        "analyst": build(*analyst.analyse(IdGenerator("a"), "Compare them", "cntr_1", include_outputs=True)),
    }


@pytest.mark.parametrize("chunk", [1, 6, 10_000])
@pytest.mark.parametrize("ending", endings())
def test_built_streams_follow_the_grammar_and_the_types(ending, chunk):
    """Whatever the items, the ending and the size of the pieces."""
    events = event_grammar.stream_events(endings()[ending], chunk)
    assert find_stream_violations(events) == []
    for event in events:
        flat = {**event["error"], **event} if event["type"] == "error" else event
        EVENT.validate_python(json.loads(json.dumps(flat)))


def test_the_terminal_event_has_the_full_output_and_usage():
    """It carries exactly the final items; the first event carries none."""
    response = build(*every_kind_of_item())
    events = event_grammar.stream_events(response)
    assert events[-1]["response"] == response
    assert events[-1]["response"]["usage"]["total_tokens"] > 0
    assert (events[0]["response"]["output"], events[0]["response"]["usage"]) == ([], None)


def test_the_encrypted_content_of_an_opened_item_is_not_the_final_one():
    """Only the value of the finished item can be verified later."""
    events = event_grammar.stream_events(build(*every_kind_of_item()))
    added = next(event["item"] for event in events if event["type"] == "response.output_item.added")
    done = next(event["item"] for event in events if event["type"] == "response.output_item.done")
    assert added["encrypted_content"] != done["encrypted_content"]
    assert [sealed.is_genuine(item["encrypted_content"]) for item in (added, done)] == [False, True]


def test_code_outputs_are_null_until_the_item_is_done():
    """And stay null if the request did not ask for them."""
    call = items.build_code_call(IdGenerator("x"), "1", "cntr_1", logs="1", include_outputs=True)
    events = event_grammar.stream_events(build(call))
    assert events[2]["item"]["outputs"] is None
    assert events[2]["item"]["code"] == ""
    assert events[-2]["item"]["outputs"] == [{"type": "logs", "logs": "1"}]
    assert items.build_code_call(IdGenerator("x"), "1", "cntr_1", logs="1", include_outputs=False)["outputs"] is None


def broken_streams():
    good = event_grammar.stream_events(build(*every_kind_of_item()))
    renumbered = [dict(event) for event in good]
    renumbered[3]["sequence_number"] = 17
    other_text = [dict(event) for event in good]
    delta = next(event for event in other_text if event["type"] == "response.output_text.delta")
    delta["delta"] = "changed"
    return {
        "empty": [],
        "no end": good[:-1],
        "no beginning": good[1:],
        "an event missing": good[:5] + good[6:],
        "numbers out of order": renumbered,
        "deltas that do not join": other_text,
        "an item left open": good[:3] + good[-1:],
    }


@pytest.mark.parametrize("fault", broken_streams())
def test_the_checker_finds_broken_streams(fault):
    """Each kind of damage is named."""
    assert find_stream_violations(broken_streams()[fault])


def test_citations_span_their_sandbox_links():
    """Start and end index cut the link out of the text, for text with characters outside ASCII, too."""
    text, citations = items.cite_files(
        IdGenerator("c"), "Größe: [x.csv](sandbox:/mnt/data/x.csv).", "cntr_1", ["x.csv"]
    )
    assert [text[one["start_index"] : one["end_index"]] for one in citations] == ["sandbox:/mnt/data/x.csv"]
    assert citations[0]["file_id"].startswith("cfile_")
