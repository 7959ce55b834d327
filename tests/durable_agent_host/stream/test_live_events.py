"""Updates to live events: the text that is told is the text that is stored."""

import pytest
from agent_framework import AgentResponseUpdate, Content
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.stream.fold import fold_updates
from durable_agent_host.stream.live_events import LiveEvents
from durable_agent_host.stream.response_messages import response_messages
from durable_agent_host.turn.turn_events import with_short_result
from tests.durable_agent_host.stream.streams import provider


def text_of(events):
    """Join the fragments of the answer."""
    return "".join(event.data["text"] for event in events if event.event == "message.delta")


def live_events(updates, **options):
    """Give all that updates tell, and then what is left to tell."""
    live = LiveEvents(provider, **options)
    events = [event for update in updates for event in live.feed(update)]
    events += live.end_run()
    first_wrong, last_events = live.messages.correct(messages_of(fold_updates(updates, provider)))
    return without_messages(events, first_wrong), last_events


def without_messages(events, first_wrong):
    """Discard the texts of a message and of all that follow, with the blank line before it."""
    if first_wrong is None:
        return events
    start = events.index(("message.started", {"index": first_wrong}))
    return events[: start - 1 if first_wrong else start]


def messages_of(response):
    """Give the stored messages."""
    return response_messages(response.messages, provider.service_files)


def response_text(response):
    """Give the stored text."""
    return "\n\n".join(message["text"] for message in messages_of(response))


def update(*contents, **more):
    """Make an update of the assistant."""
    return AgentResponseUpdate(contents=list(contents), role="assistant", **more)


def text(fragment, mode="append"):
    """Make a text that a stream gives."""
    return Content.from_text(fragment, merge_mode=mode)


@given(st.lists(st.tuples(st.sampled_from(["text", "code", "whole", "message"]), st.text(max_size=5)), max_size=30))
def test_the_streamed_text_is_the_stored_text(steps):
    """However a stream goes, what a client has at the end is the folded text, corrections included."""
    updates, part, number = [], "", 0
    for kind, fragment in steps:
        if kind == "text":
            part += fragment
            updates.append(update(text(fragment), message_id=str(number)))
        elif kind == "whole":
            updates.append(update(text(part, "replace"), message_id=str(number)))
            part = ""
        elif kind == "code":
            part = ""
            code = Content.from_code_interpreter_tool_call(call_id=f"c{number}", inputs=[text(fragment)])
            updates.append(update(code, message_id=str(number)))
        else:
            part, number = "", number + 1
    events, last_events = live_events(updates)
    assert text_of([*events, *last_events]) == response_text(fold_updates(updates, provider))


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
    expected = ("tool.completed", {"call_id": "s", "outcome": outcome, "result": text} | files)
    assert with_short_result(events[-1]) == expected
    assert bool(files) == any(output.type == "data" for output in result.outputs or ())
