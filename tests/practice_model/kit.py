"""What the tests of the practice model share: tools to offer, and readers of its answers."""

import json

ECHO = {"type": "function", "name": "echo", "parameters": {"type": "object", "properties": {"text": {}}}}
CODE = {"type": "code_interpreter", "container": {"type": "auto"}}


def events_of(answer):
    """Return the events of a stream, checked line by line."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = []
    for block in answer.text.removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


def text_of(response):
    """Return the text that an answer ends with."""
    return response["output"][-1]["content"][0]["text"]
