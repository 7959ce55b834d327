"""The laws of the fold over answers with what recordings lack, and over streams that services write otherwise."""

import pytest

from durable_agent_host.providers.openai.item_mapping import (
    find_item_metadata,
    group_by_item,
    input_item,
    to_input_item,
)
from durable_agent_host.stream.fold import fold_updates
from tests.durable_agent_host.openai_outputs import OUTPUTS, TOKEN, build_events, build_response_body, message, text
from tests.durable_agent_host.stream.comparing import comparable, contents_of, is_sent_back
from tests.durable_agent_host.stream.streams import (
    encode_messages,
    parse_response,
    provider,
    updates_of,
)

pytestmark = pytest.mark.filterwarnings("ignore:.COMPUTER_USE.")


def final_body(name):
    """The final response of an answer."""
    return build_response_body(OUTPUTS[name], "incomplete" if name.startswith("cut off") else "completed")


def assert_is_final(events, body):
    """Hold the fold of events against the final response: what is stored, and the items that the next turn sends."""
    response = fold_updates(updates_of(events), provider)
    contents, expected_contents = (contents_of(encode_messages(answer)) for answer in (response, parse_response(body)))
    assert comparable(contents) == comparable(expected_contents)
    groups = [group for message in response.messages for group in group_by_item(message.contents)]
    sent = [input_item(group) for group in groups if find_item_metadata(group[0]) is not None]
    expected_items = [to_input_item(item) for item in body["output"] if is_sent_back(item)]
    assert comparable(sent) == comparable(expected_items)


@pytest.mark.drawn(12)
@pytest.mark.parametrize("name", OUTPUTS)
def test_the_fold_is_the_final_response(name):
    """Every kind of item and part is stored as the client parses it from the response that was sent whole."""
    body = final_body(name)
    assert_is_final(build_events(body), body)


def test_token_probabilities_are_stored_with_their_texts():
    """Probabilities stand with the part that they are of, once."""
    texts = [text("Hi", logprobs=(TOKEN,)), text("Hi", logprobs=(TOKEN, TOKEN))]
    body = build_response_body([message(1, *texts), message(2, text("Hi", logprobs=(TOKEN,)))])
    response = fold_updates(updates_of(build_events(body)), provider)
    assert contents_of(encode_messages(response)) == contents_of(encode_messages(parse_response(body)))
    logprobs = [content.additional_properties["logprobs"] for content in response.messages[0].contents]
    assert [len(tokens) for tokens in logprobs] == [1, 2, 1]


# --- streams that services write otherwise ------------------------------------------------------------------------


def without_field(*names):
    return lambda events: [{name: value for name, value in e.items() if name not in names} for e in events]


def without_events(*endings):
    return lambda events: [event for event in events if not event["type"].endswith(endings)]


def with_fields(choose, change):
    return lambda events: [event | change(event) if choose(event) else event for event in events]


def is_item_done(event):
    return event["type"] == "response.output_item.done"


def items_reversed(events):
    indexes = sorted({event["output_index"] for event in events if "output_index" in event}, reverse=True)
    inner = [event for index in indexes for event in events if event.get("output_index") == index]
    return [*events[:2], *inner, events[-1]]


def done_last(events):
    inner = [event for event in events[:-1] if not is_item_done(event)]
    return [*inner, *(event for event in reversed(events) if is_item_done(event)), events[-1]]


def with_noise(events):
    noise = {"type": "response.novel.delta", "delta": "noise"}, {"type": "keepalive"}
    return [
        stream_event for event in events for stream_event in (event, *(more | {"output_index": 0} for more in noise))
    ]


DONE_FIELDS = ("text", "arguments", "code", "input", "refusal", "command")

QUIRKS = {
    "no deltas": without_events(".delta"),
    "finished items alone": lambda events: [events[0], *filter(is_item_done, events), events[-1]],
    "taken up after items began": without_events("output_item.added", "response.created", "in_progress"),
    "no parts": without_events("_part.added", "_part.done"),
    "no ends but the items'": lambda events: [
        event for event in events if is_item_done(event) or not event["type"].endswith(".done")
    ],
    "items finished twice": lambda events: [
        stream_event for e in events for stream_event in ([e, e] if is_item_done(e) else [e])
    ],
    "items finished last": done_last,
    "items the other way round": items_reversed,
    "other deltas": with_fields(lambda event: isinstance(event.get("delta"), str), lambda _: {"delta": "???"}),
    "other ends": with_fields(
        lambda event: event["type"].endswith(".done") and not is_item_done(event),
        lambda event: {name: "###" for name in DONE_FIELDS if name in event},
    ),
    "one position for all": with_fields(lambda event: "output_index" in event, lambda _: {"output_index": 0}),
    "positions from one": with_fields(
        lambda event: "output_index" in event, lambda event: {"output_index": event["output_index"] + 1}
    ),
    "no positions": without_field("output_index"),
    "no positions but the items'": lambda events: [
        {name: value for name, value in event.items() if "item" in event or name != "output_index"} for event in events
    ],
    "no numbers of parts": without_field("content_index", "summary_index"),
    "one number for all parts": with_fields(
        lambda event: "content_index" in event or "summary_index" in event,
        lambda event: dict.fromkeys({"content_index", "summary_index"} & event.keys(), 0),
    ),
    "no ids in events": without_field("item_id"),
    "no sequence numbers": without_field("sequence_number"),
    "unknown events between": with_noise,
}
"""What services and proxies do otherwise → how it changes the events."""


@pytest.mark.drawn(15)
@pytest.mark.parametrize(
    ("name", "quirk"),
    [  # each kind of answer with a third of the quirks, each quirk with a third of the answers
        (name, quirk)
        for number, name in enumerate(OUTPUTS)
        for other, quirk in enumerate(QUIRKS)
        if (number + other) % 3 == 0
    ],
)
def test_streams_written_otherwise_are_the_final_response(name, quirk):
    """What a service leaves out, repeats, or numbers otherwise does not change what is stored."""
    body = final_body(name)
    assert_is_final(QUIRKS[quirk](build_events(body)), body)
