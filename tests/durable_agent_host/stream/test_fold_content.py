"""The arguments of a call whose fragments have several forms: what the fold gives is what a live run gives the tool."""

import pytest
from agent_framework import ChatResponse, ChatResponseUpdate, Content

from durable_agent_host.stream.fold import fold_contents, fold_updates
from tests.durable_agent_host.stream.streams import provider

STREAMS = {
    "an empty object, then text": [{}, '{"a":', "2}"],
    "an empty object, an empty text, then text": [{}, "", '{"a":', "", "2}"],
    "an empty object and no more": [{}],
    "an empty object and an empty text": [{}, ""],
    "an empty text, then an object": ["", {"a": 2}],
    "an empty text and an empty object": ["", {}],
    "nothing, then text": [None, '{"a":', None, "2}"],
    "text, then an empty object": ['{"a":', {}, "2}"],
    "text, then an empty text": ['{"a":2}', ""],
    "a text of an empty object, then text": ["{}", '{"a":2}'],
    "an object, then an empty text": [{"a": 2}, ""],
    "an object, then an empty object": [{"a": 2}, {}],
    "objects": [{"a": 1}, {"b": 2}, {"a": 3}],
    "an object, then nothing": [{"a": 2}, None],
}


def call(arguments, mode="append", **names):
    return Content("function_call", call_id="c", name="f", arguments=arguments, merge_mode=mode, **names)


def updates_of(*contents):
    return [ChatResponseUpdate(role="assistant", contents=[content], message_id="m") for content in contents]


def live_arguments(updates):
    """What the framework gives the tool of a live run, which counts no arguments and empty ones alike."""
    contents = ChatResponse.from_updates(updates).messages[0].contents
    return [content.parse_arguments() or {} for content in contents]


def folded_arguments(updates):
    contents = fold_updates(updates, provider).messages[0].contents
    return [content.parse_arguments() or {} for content in contents]


@pytest.mark.parametrize("fragments", STREAMS.values(), ids=STREAMS)
def test_the_folded_arguments_are_those_of_the_live_run(fragments):
    """In whatever forms the fragments come, and when a history has them chunk by chunk."""
    updates = updates_of(*map(call, fragments))
    assert folded_arguments(updates) == live_arguments(updates)
    (content,) = fold_contents([call(fragment, None) for fragment in fragments])
    assert [content.parse_arguments() or {}] == live_arguments(updates)
