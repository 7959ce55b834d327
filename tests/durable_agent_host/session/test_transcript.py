"""Which messages go to the model."""

from durable_agent_host.session.transcript import replay_messages


def entry(kind, turn_id, *contents):
    role = "user" if kind == "request" else "assistant"
    return {"$type": kind, "correlationId": turn_id, "messages": [{"role": role, "contents": list(contents)}]}


def text(value):
    return {"$type": "text", "text": value}


ERROR = {"$type": "error", "message": "it broke"}


def test_turns_that_upstream_stored_as_failed_are_left_out():
    """Neither the question nor the error text of a failed turn is shown to the model."""
    entries = [
        *[entry("request", "a", text("1")), entry("response", "a", ERROR)],
        *[entry("request", "b", text("3")), entry("response", "b", text("4"), ERROR)],
    ]
    assert [message.text for message in replay_messages(entries)] == ["3", "4"]
