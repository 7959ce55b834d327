"""A turn as the text of a test: the app is asked again, and the model repeats its answers."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from durable_agent_host.model.turn import Turn

_TEXT: Final = '''"""Turn {turn} of agent {agent}, of {created_at}: the app does what it did.

The model's answers are those of then. Run it with pytest in the app's folder, where durable-agent-host is installed.
"""

import json

from practice_model.testing import playing

pytest_plugins = ["functions_host.testing"]

ANSWERS = json.loads(
    {answers}
)
"""Of the model, one for each call."""

TOOL_RESULTS = json.loads(
    {results}
)
"""Of the app's tools, by call."""


def test_the_turn_is_as_it_was(durable_app):
    """Tools answer what they answered, and so does the agent."""
    with playing(ANSWERS) as model:
        app = durable_app(settings=model.settings)
        answer = app.http("POST", {path}, json.loads({body}))
        assert answer.status == 200, answer.text
        assert model.tool_results() == TOOL_RESULTS
        assert answer.json()["response"] == {response}
        assert len(model.requests()) == len(ANSWERS)
'''


def no_test_reason(turn: Turn) -> str | None:
    """Return why a turn cannot be copied as a test, or None."""
    if turn.outcome is None or turn.outcome.status != "completed":
        return "only a turn that has completed can be copied as a test"
    if turn.replies:
        return "a person has answered in the turn: a test would wait for one"
    if turn.request.contents:
        return "the turn began with more than a text: a test would not have its files"
    return None


def generate_test(turn: Turn, calls: Sequence[tuple[Any, Any]], path: str) -> str | None:
    """Generate the test of a turn.

    Returns:
        A Python module in ASCII; None when an answer is not one of the Responses API.
    """
    responses: list[Any] = [answer for _, answer in calls]
    if not responses or not all(map(_is_response, responses)):
        return None
    requested_call_ids = {item.get("call_id") for response in responses for item in _items(response.get("output"))}
    results = {
        item["call_id"]: item.get("output")
        for request, _ in calls
        for item in _items(cast("Mapping[str, Any]", request).get("input"))
        if item.get("type") == "function_call_output" and item.get("call_id") in requested_call_ids
    }
    request = turn.request
    body = {"message": request.message} | ({"options": dict(request.options)} if request.options else {})
    if request.response_format is not None:
        body["response_format"] = dict(request.response_format)
    return _TEXT.format(
        turn=_plain(request.turn_id),
        agent=_plain(request.agent),
        created_at=_plain(request.created_at or "unknown time"),
        answers=ascii(json.dumps(responses)),
        results=ascii(json.dumps(results)),
        path=ascii(path),
        body=ascii(json.dumps(body)),
        response=ascii(turn.outcome.text if turn.outcome is not None else ""),
    )


def _is_response(answer: Any) -> bool:
    return isinstance(answer, Mapping) and cast("Mapping[str, Any]", answer).get("object") == "response"


def _items(value: Any) -> list[Mapping[str, Any]]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("Mapping[str, Any]", item) for item in items if isinstance(item, Mapping)]


def _plain(name: str) -> str:
    """Write a name into a comment, so that it cannot end the comment."""
    return "".join(
        character if (character.isalnum() and character.isascii()) or character in "-_.:+" else "?"
        for character in name
    )
