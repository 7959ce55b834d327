"""A session of one provider continues with another, and returns."""

import json
from itertools import pairwise, permutations

import pytest

from tests.durable_agent_host.provider_lab import KINDS, ProviderLab
from tests.durable_agent_host.provider_table.probes import MARK
from tests.durable_agent_host.provider_table.table import PROBES


def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: found on page 7"


CALLS = [{"name": "look_up", "arguments": {"word": word}} for word in ("amber", "birch")]
STEPS = (
    ({"reasoning": "Weigh it up."}, {"code": "print('cedar')", "logs": "cedar-out\n", "image": True}, {"calls": CALLS}),
    ({"text": "Dogwood is the answer."},),
)
EXPECTED_TEXTS = "amber", "birch", "found on page 7", "print('cedar')", "cedar-out", "Dogwood is the answer."
"""What the next model has to read of that turn; Chat Completions runs no code, so nothing is put out there."""


def start_session(kind):
    """Make a session with a turn of a provider: reasoning, code with an image, parallel calls and an answer."""
    lab = ProviderLab(tools=[look_up])
    lab.plan(*({"items": list(items)} for items in STEPS))
    return lab


async def turn(lab, kind, text):
    """Run a turn; the model refuses nothing. Gives what it was sent."""
    before = len(lab.bodies)
    outcome = await lab.cold_turn(kind, text)
    assert (outcome.status, lab.refusals) == ("completed", [])
    return json.dumps(lab.bodies[before:], ensure_ascii=False)


@pytest.mark.drawn(4)
@pytest.mark.parametrize(("first", "second"), [*permutations(KINDS, 2)])
async def test_a_conversation_moves_to_another_provider_and_back(first, second):
    """The second reads what was said, run and returned; the first then finds its own blocks, word for word.

    A service that keeps the conversation itself begins a new one, with all that was said, when it comes back.
    """
    lab = start_session(first)
    own_body = json.loads(await turn(lab, first, "Begin"))[-1]
    document = lab.document
    sent_text = await turn(lab, second, "Go on elsewhere")
    expected_texts = [
        json.dumps(text, ensure_ascii=False)[1:-1] for text in EXPECTED_TEXTS if (first, text) != ("chat", "cedar-out")
    ]
    assert [text for text in expected_texts if text not in sent_text] == []
    assert _entries(document) == _entries(lab.document)[: len(_entries(document))]
    back = await turn(lab, first, "And here again")
    assert "Go on elsewhere" in back
    if KINDS[first].keeps_conversation:
        assert [text for text in expected_texts if text not in back] == []
    else:
        [sent] = json.loads(back)
        assert _conversation(sent)[: len(_conversation(own_body))] == _conversation(own_body)


@pytest.mark.parametrize("first", KINDS)
async def test_every_block_of_a_provider_is_accepted_by_the_others(first):
    """After each kind of block that a provider knows, every other provider's service takes the conversation."""
    blocks = [probe.steps for probe in PROBES[first] if len(probe.steps) == 1]
    lab = ProviderLab(tools=[look_up])
    for number, ((items),) in enumerate(blocks):
        lab.plan({"items": list(items)})
        outcome = await lab.cold_turn(first, f"Question {number}")
        assert outcome.status == "completed"
        lab.clear_refusals()
    before = lab.session
    for second in [kind for kind in KINDS if kind != first]:
        lab.session = before
        sent_text = await turn(lab, second, "Go on elsewhere")
        assert sent_text.count("Question ") == len(blocks)
        assert MARK in sent_text


@pytest.mark.drawn(2)
@pytest.mark.parametrize(("first", "second"), [*pairwise([*KINDS, next(iter(KINDS))])])
async def test_a_failed_move_changes_nothing(first, second):
    """A turn with the other provider that fails leaves the session as it was, for both."""
    lab = start_session(first)
    await turn(lab, first, "Begin")
    document = lab.document
    lab.plan({"error": {"status": 400, "code": "bad", "message": "your credit is used up"}})
    outcome = await lab.cold_turn(second, "Go on elsewhere")
    assert outcome.status == "failed"
    assert _entries(lab.document) == _entries(document)
    lab.clear_refusals()
    await turn(lab, first, "And here again")


def _entries(document):
    return json.loads(document)["data"]["conversationHistory"]


def _conversation(body):
    """The conversation of a request; an agent's name stands on its messages as soon as its turn has ended."""
    messages = next(body[name] for name in ("input", "messages", "contents") if name in body)
    return [
        {name: value for name, value in message.items() if name != "name" or message.get("type")}
        for message in messages
    ]
