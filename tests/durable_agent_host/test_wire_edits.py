"""What a middleware changes in the history of one turn is what the model gets, whatever the service's items say."""

import json

import pytest
from agent_framework import ChatMiddleware, Content, tool

from tests.durable_agent_host.provider_lab import ProviderLab

SECRET, MASK = "SECRET", "[mask]"


@tool(name="look_up")
def find_word(word: str) -> str:
    """Look a word up."""
    return "found it"


def mask(content: Content) -> None:
    """Mask the secret in a content, in place."""
    if content.text:
        content.text = content.text.replace(SECRET, MASK)
    if content.arguments:
        content.arguments = json.loads(json.dumps(content.arguments).replace(SECRET, MASK))
    for part in [*(content.inputs or ()), *(content.outputs if isinstance(content.outputs, list) else ())]:
        mask(part)


class Mask(ChatMiddleware):
    """Masks the secret in the answers of a request."""

    async def process(self, context, call_next):
        """Mask, and go on."""
        for message in context.messages:
            for content in message.contents if message.role == "assistant" else ():
                mask(content)
        await call_next()


@pytest.mark.parametrize("kind", ["openai", "anthropic", "gemini", "chat"])
@pytest.mark.parametrize("padding", ["", "some more words, so that the text is stored once: "], ids=["short", "long"])
async def test_a_masked_history_is_sent_masked(kind: str, padding: str):
    """Reasoning, code, arguments and texts; the service accepts them, signed texts without their signature."""
    secret = f"{padding}{SECRET}"
    lab = ProviderLab(tools=[find_word])
    call = {"name": "look_up", "arguments": {"word": secret}}
    items = [{"reasoning": f"hm {secret}"}, {"code": f"print('{secret}')", "logs": "ok\n"}, {"calls": [call]}]
    lab.plan({"items": items}, {"items": [{"reasoning": "r"}, {"text": f"It is {secret}."}]})
    assert (await lab.cold_turn(kind, "first")).status == "completed"
    first_count = len(lab.bodies)
    lab.middleware = [Mask()]
    lab.plan({"text": "Fine."})
    outcome = await lab.cold_turn(kind, "second")
    assert (outcome.status, outcome.error, lab.refusals) == ("completed", None, [])
    sent = json.dumps(lab.bodies[first_count:])
    assert SECRET not in sent
    assert sent.count(MASK) >= 2
