"""A service that can no longer read the signatures of thoughts: the session continues without them."""

import json
import re

import pytest
from agent_framework import tool

from durable_agent_host.turn_log.sqlite_log import SqliteTurnLog
from tests.durable_agent_host.provider_lab import ProviderLab


@tool(name="look_up")
def find_word(word: str) -> str:
    """Look a word up."""
    return f"{word}: found on page 7"


def call(word):
    """A model call that thinks, and asks for a tool."""
    return {"items": [{"reasoning": f"About {word}."}, {"calls": [{"name": "look_up", "arguments": {"word": word}}]}]}


def refusal(message):
    """The service's refusal of a request."""
    return {"error": {"status": 400, "message": message}}


DONE = {"text": "Done."}
REFUSALS = [
    ("anthropic", "messages.1.content.0: Invalid `signature` in `thinking`       block"),
    ("anthropic", "messages.1.content.0: Invalid signature in thinking block"),
    ("anthropic", "messages.1.content.0: Invalid `data` in `redacted_thinking` block"),
    ("gemini", "Corrupted thought signature."),
    ("gemini", "Unable to submit request because Thought signature is not valid."),
]
"""Provider, and its words."""


def signatures(body):
    """The signatures in a request."""
    texts = re.findall(r'"(?:signature|thoughtSignature)": "([^"]+)"', json.dumps(body))
    return [signature for signature in texts if signature != "skip_thought_signature_validator"]


@pytest.mark.parametrize(("kind", "message"), REFUSALS)
async def test_rejected_thoughts_are_never_sent_again(kind, message, caplog):
    """One refused request; the record keeps them, and what the model thinks afterwards goes back to it."""
    lab = ProviderLab(tools=[find_word])
    lab.plan(call("amber"), DONE, refusal(message), call("birch"), DONE, DONE)
    for index in range(3):
        assert (await lab.cold_turn(kind, f"Question {index}")).status == "completed"
    _, old, before, again, after, last = map(signatures, lab.bodies)
    assert old
    assert before[: len(old)] == old
    assert again == []
    assert after
    assert not set(after) & set(before)
    assert last[: len(after)] == after
    assert not set(last) & set(before)
    assert all(signature in lab.document for signature in {*before, *last})
    [log_text] = [record.getMessage() for record in caplog.records if "can no longer use" in record.getMessage()]
    assert "can no longer use the reasoning" in log_text


@pytest.mark.parametrize("kind", ["anthropic", "gemini"])
async def test_thoughts_rejected_within_a_turn_are_omitted(kind, tmp_path):
    """The tools' results go on without them, as the service takes that: with thinking off, or with its own word."""
    lab = ProviderLab(tools=[find_word])
    lab.plan(call("amber"), refusal(dict(REFUSALS)[kind]), call("birch"), DONE, DONE)
    log = SqliteTurnLog(tmp_path / "log.db")
    try:
        for index in range(2):
            assert (await lab.cold_turn(kind, f"Question {index}", lambda: log)).status == "completed"
    finally:
        await log.close()
    _, before, again, after, last = map(signatures, lab.bodies)
    assert before
    assert again == []
    assert after
    assert not set(after) & set(before)
    assert last[: len(after)] == after
    assert not set(last) & set(before)
    assert all(json.dumps(body).count("amber: found on page 7") == 1 for body in lab.bodies[1:])
