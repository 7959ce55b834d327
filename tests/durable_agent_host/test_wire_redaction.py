"""A redacted conversation goes back to every model service, which takes it."""

import json

import pytest
from agent_framework import tool

from durable_agent_host.turn.turn_redactor import Redactor
from tests.durable_agent_host.canaries import hide_canaries
from tests.durable_agent_host.provider_lab import ProviderLab

WHERE = ("message", "reasoning", "arguments", "result", "code", "logs", "answer")
SECRETS = {where: f"{where}.canary@example.com" for where in WHERE}
STEPS = (
    (
        {"reasoning": f"Weigh {SECRETS['reasoning']} up."},
        {"code": f"print('{SECRETS['code']}')", "logs": f"{SECRETS['logs']}\n"},
        {"calls": [{"name": "look_up", "arguments": {"word": SECRETS["arguments"]}}]},
    ),
    ({"reasoning": "Fine."}, {"text": f"It is {SECRETS['answer']}."}),
)


@tool(name="look_up")
def find_word(word: str) -> str:
    """Look a word up."""
    return f"{word}: found by {SECRETS['result']}"


def find_secrets(text: str) -> set[str]:
    """Name the secrets in a text."""
    return {where for where, secret in SECRETS.items() if secret in text}


@pytest.mark.parametrize("kind", ["openai", "anthropic", "gemini", "chat"])
async def test_a_redacted_conversation_is_accepted(kind: str):
    """The running turn has everything; nothing of it is stored, and the services refuse nothing of what is left."""
    lab = ProviderLab(tools=[find_word], redactor=Redactor(hide_canaries))
    lab.plan(*({"items": list(items)} for items in STEPS))
    outcome = await lab.cold_turn(kind, f"Find {SECRETS['message']}")
    assert (outcome.status, outcome.error, lab.refusals) == ("completed", None, [])
    assert find_secrets(json.dumps(lab.bodies)) >= {"message", "arguments", "result"}
    assert find_secrets(lab.document) == set()
    assert "[redacted]" in lab.document
    for text in ("And now?", "And then?"):
        before = len(lab.bodies)
        lab.plan({"text": "Fine."})
        outcome = await lab.cold_turn(kind, text)
        assert (outcome.status, outcome.error, lab.refusals) == ("completed", None, [])
        sent = json.dumps(lab.bodies[before:])
        assert find_secrets(sent) == set()
        assert "found by [redacted]" in sent
