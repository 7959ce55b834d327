"""Updates to live events: the text that is told is the text that is stored."""

import os

import pytest
from agent_framework import AgentResponseUpdate, Content
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.codec.tool_result_text import result_text, short_text
from durable_agent_host.stream.fold import fold_updates, response_as_updates
from durable_agent_host.stream.live_events import LiveEvents
from durable_agent_host.stream.response_messages import response_messages
from tests.durable_agent_host.stream.streams import FOLDER, provider, read_recordings


def text_of(events):
    """Join the pieces of the answer."""
    return "".join(event.data["text"] for event in events if event.event == "message.delta")


def names(events):
    """Name the events, without their pieces."""
    return [event.event for event in events if not event.event.endswith(".delta")]


def live_events(updates, **options):
    """Give all that updates tell, and then what is left to tell."""
    live = LiveEvents(provider, **options)
    events = [event for update in updates for event in live.feed(update)]
    return events, live.finish(messages_of(fold_updates(updates, provider)))


def messages_of(response):
    """Give the stored messages."""
    return response_messages(response.messages, provider.service_files)


def response_text(response):
    """Give the stored text."""
    return "\n\n".join(message["text"] for message in messages_of(response))


def told_messages(events):
    """Give the messages of the events."""
    fields = ("text", "citations", "files")
    return [{name: event.data[name] for name in fields} for event in events if event.event == "message.completed"]


def update(*contents, **more):
    """Make an update of the assistant."""
    return AgentResponseUpdate(contents=list(contents), role="assistant", **more)


def text(piece, mode="append"):
    """Make a text that a stream gives."""
    return Content.from_text(piece, merge_mode=mode)


def streams():
    """All recorded streams."""
    return read_recordings() if FOLDER.is_dir() else []


@pytest.mark.recordings
def test_recordings_are_there():
    """The next tests have something to play."""
    if not FOLDER.is_dir():
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no recordings: set RECORDINGS_DIR")
    assert len(streams()) > 90


@pytest.mark.recordings
@pytest.mark.parametrize("stream", streams(), ids=lambda stream: stream.name)
def test_the_pieces_of_a_recorded_stream_are_its_stored_text(stream):
    """Joined in order, and without a correction at the end; every call that began has ended."""
    events, last_events = live_events(stream.updates)
    response = fold_updates(stream.updates, provider)
    assert text_of(events) == response_text(response)
    assert not {"message.delta", "turn.restarted"} & {event.event for event in last_events}
    stored = [{name: message[name] for name in ("text", "citations", "files")} for message in messages_of(response)]
    assert told_messages([*events, *last_events]) == stored
    call_ids = [event.data["call_id"] for event in [*events, *last_events] if event.event == "tool.completed"]
    assert len(call_ids) == len(set(call_ids))


@pytest.mark.recordings
@pytest.mark.parametrize("stream", streams(), ids=lambda stream: stream.name)
def test_a_response_that_is_played_again_has_the_same_text(stream):
    """What a journal gives whole tells, by the same rules, the text that the stream told."""
    response = fold_updates(stream.updates, provider)
    live = LiveEvents(provider)
    events = [event for response_update in response_as_updates(response) for event in live.feed(response_update)]
    assert text_of(events) == response_text(response)
    events += live.finish(messages_of(response))
    assert "turn.restarted" not in names(events)
    assert [message["text"] for message in told_messages(events)] == [m["text"] for m in messages_of(response)]


@given(st.lists(st.tuples(st.sampled_from(["text", "code", "whole", "message"]), st.text(max_size=5)), max_size=30))
def test_the_streamed_text_is_the_stored_text(steps):
    """However a stream goes, what a client has at the end is the folded text, corrections included."""
    updates, part, number = [], "", 0
    for kind, piece in steps:
        if kind == "text":
            part += piece
            updates.append(update(text(piece), message_id=str(number)))
        elif kind == "whole":
            updates.append(update(text(part, "replace"), message_id=str(number)))
            part = ""
        elif kind == "code":
            part = ""
            code = Content.from_code_interpreter_tool_call(call_id=f"c{number}", inputs=[text(piece)])
            updates.append(update(code, message_id=str(number)))
        else:
            part, number = "", number + 1
    events, last_events = live_events(updates)
    if any(event.event == "turn.restarted" for event in last_events):
        events = []
    assert text_of([*events, *last_events]) == response_text(fold_updates(updates, provider))


@pytest.mark.recordings
@pytest.mark.parametrize("stream", streams(), ids=lambda stream: stream.name)
def test_a_code_runs_event_has_the_result_that_is_stored(stream):
    """What code has printed is in the event of its end, although a stream has it in its last item alone."""
    response = fold_updates(stream.updates, provider)
    results = {
        content.call_id: short_text(result_text(content))
        for message in response.messages
        for content in message.contents
        if content.type == "code_interpreter_tool_result" and content.outputs
    }
    live = LiveEvents(provider)
    completions = [
        event.data
        for stream_update in stream.updates
        for event in live.feed(stream_update)
        if event.event == "tool.completed"
    ]
    assert {data["call_id"]: data["result"] for data in completions if data["call_id"] in results} == results


def test_a_hosted_tool_without_its_own_type_has_the_same_events():
    """A call for information alone has its start and its end, also where the middleware tells of the app's tools."""
    live = LiveEvents(emits_function_events=False)
    arguments = '{"path": "a.txt"}'
    call = Content.from_function_call("e1", "file_editor", arguments=arguments, informational_only=True)
    result = Content.from_function_result("e1", result="3 lines")
    events = live.feed(update(call)) + live.feed(update(result))
    assert [tuple(event) for event in events] == [
        ("tool.started", {"call_id": "e1", "name": "file_editor", "arguments": arguments}),
        ("tool.completed", {"call_id": "e1", "outcome": "success", "result": "3 lines"}),
    ]


@pytest.mark.parametrize(
    ("result", "outcome", "text"),
    [
        (
            Content.from_shell_tool_result(
                call_id="s", outputs=[Content.from_shell_command_output(stdout="a", stderr="no", exit_code=2)]
            ),
            "error",
            "a\nno\nexit code 2",
        ),
        (
            Content.from_shell_tool_result(
                call_id="s",
                outputs=[
                    Content.from_shell_command_output(stdout="a" * 600, exit_code=0),
                    Content.from_hosted_file("file_1", name="b.csv"),
                ],
            ),
            "success",
            "a" * 500 + " … (613 characters)",
        ),
        (
            Content.from_mcp_server_tool_result("s", output=[Content.from_text("one"), Content.from_text("two")]),
            "success",
            "one\ntwo",
        ),
        (
            Content.from_mcp_server_tool_result("s", additional_properties={"error": {"code": 7}}),
            "error",
            '{"code": 7}',
        ),
        (
            Content.from_code_interpreter_tool_result(
                call_id="s", outputs=[Content.from_uri("data:image/png;base64,AA==", media_type="image/png")]
            ),
            "success",
            "[image/png]",
        ),
    ],
)
def test_the_outcome_of_a_hosted_call_is_read_from_neutral_contents(result, outcome, text):
    """Failure and a short result come from what every provider fills alike."""
    live = LiveEvents()
    kind = result.type.replace("_result", "_call")
    events = live.feed(update(Content(kind, call_id="s", tool_name="t"))) + live.feed(update(result))
    files = {name: events[-1].data[name] for name in ("files",) if name in events[-1].data}
    assert events[-1] == ("tool.completed", {"call_id": "s", "outcome": outcome, "result": text} | files)
    assert bool(files) == any(output.type == "data" for output in result.outputs or ())
