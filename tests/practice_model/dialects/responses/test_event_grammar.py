"""Every stream of the practice model follows the grammar and matches the openai package's types."""

import json

import pytest
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from practice_model.dialects.responses import event_grammar, items, response_object, sealed
from practice_model.dialects.responses.ids import IdGenerator
from practice_model.play import analyst
from tests.practice_model.stream_check import find_stream_violations

EVENT = TypeAdapter(ResponseStreamEvent)


def build_response(*output, **body):
    request = {"model": "practice", "input": "Hello", **body}
    return response_object.build_completed(request, response_id="resp_1", created_at=1, output=output, transcript=[])


def build_items_of_all_types():
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


def build_endings():
    full_response = build_response(*build_items_of_all_types())
    failure = {"code": "server_error", "message": "It broke."}
    return {
        "completed": full_response,
        "background": build_response(background=True),
        "incomplete": response_object.build_incomplete(full_response, "max_output_tokens"),
        "failed": response_object.build_failed(build_response(), failure),
        "failed after items": response_object.build_failed(full_response, failure),
        "analyst": build_response(*analyst.analyse(IdGenerator("a"), "Compare them", "cntr_1", include_outputs=True)),
    }


@pytest.mark.parametrize("chunk", [1, 6, 10_000])
@pytest.mark.parametrize("ending", build_endings())
def test_built_streams_follow_the_grammar_and_the_types(ending, chunk):
    """For all items, endings and chunk sizes."""
    events = event_grammar.stream_events(build_endings()[ending], chunk)
    assert find_stream_violations(events) == []
    for event in events:
        flat = {**event["error"], **event} if event["type"] == "error" else event
        EVENT.validate_python(json.loads(json.dumps(flat)))


def test_the_terminal_event_has_the_full_output_and_usage():
    """It carries exactly the final items; the first event carries none."""
    response = build_response(*build_items_of_all_types())
    events = event_grammar.stream_events(response)
    assert events[-1]["response"] == response
    assert events[-1]["response"]["usage"]["total_tokens"] > 0
    assert (events[0]["response"]["output"], events[0]["response"]["usage"]) == ([], None)


def test_encrypted_content_of_an_added_item_differs_from_the_final_one():
    """Only the value of the finished item can be verified later."""
    events = event_grammar.stream_events(build_response(*build_items_of_all_types()))
    added_item = next(event["item"] for event in events if event["type"] == "response.output_item.added")
    done_item = next(event["item"] for event in events if event["type"] == "response.output_item.done")
    assert added_item["encrypted_content"] != done_item["encrypted_content"]
    assert [sealed.is_genuine(item["encrypted_content"]) for item in (added_item, done_item)] == [False, True]


def test_code_outputs_are_null_until_the_item_is_done():
    """They stay null if the request does not include them."""
    call = items.build_code_call(IdGenerator("x"), "1", "cntr_1", logs="1", include_outputs=True)
    events = event_grammar.stream_events(build_response(call))
    assert events[2]["item"]["outputs"] is None
    assert events[2]["item"]["code"] == ""
    assert events[-2]["item"]["outputs"] == [{"type": "logs", "logs": "1"}]
    assert items.build_code_call(IdGenerator("x"), "1", "cntr_1", logs="1", include_outputs=False)["outputs"] is None


def build_broken_streams():
    valid_events = event_grammar.stream_events(build_response(*build_items_of_all_types()))
    renumbered_events = [dict(event) for event in valid_events]
    renumbered_events[3]["sequence_number"] = 17
    changed_events = [dict(event) for event in valid_events]
    delta = next(event for event in changed_events if event["type"] == "response.output_text.delta")
    delta["delta"] = "changed"
    return {
        "empty": [],
        "no end": valid_events[:-1],
        "no beginning": valid_events[1:],
        "an event missing": valid_events[:5] + valid_events[6:],
        "numbers out of order": renumbered_events,
        "deltas that do not join": changed_events,
        "an item left open": valid_events[:3] + valid_events[-1:],
    }


@pytest.mark.parametrize("defect", build_broken_streams())
def test_the_checker_finds_broken_streams(defect):
    """Each kind of damage is reported."""
    assert find_stream_violations(build_broken_streams()[defect])


def test_citations_span_their_sandbox_links():
    """Start and end index delimit the link, also in text with non-ASCII characters."""
    text, citations = items.cite_files(
        IdGenerator("c"), "Größe: [x.csv](sandbox:/mnt/data/x.csv).", "cntr_1", ["x.csv"]
    )
    assert [text[citation["start_index"] : citation["end_index"]] for citation in citations] == [
        "sandbox:/mnt/data/x.csv"
    ]
    assert citations[0]["file_id"].startswith("cfile_")
