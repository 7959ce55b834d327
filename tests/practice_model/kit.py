"""Shared by the tests of the practice model: tools, and parsers of its responses."""

import json

ECHO = {"type": "function", "name": "echo", "parameters": {"type": "object", "properties": {"text": {}}}}
CODE = {"type": "code_interpreter", "container": {"type": "auto"}}


def parse_events(response):
    """Return the events of a stream, checked line by line."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    events = []
    for event_block in response.text.removesuffix("\n\n").split("\n\n"):
        name, data = event_block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


def get_text(response):
    """Return the text of a response's last message."""
    return response["output"][-1]["content"][0]["text"]
