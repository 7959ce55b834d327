"""A session of one provider continues with another, and returns."""

import json
import re
from itertools import pairwise, permutations

import pytest

from tests.durable_agent_host.provider_blocks import BLOCKS
from tests.durable_agent_host.provider_lab import KINDS, ProviderLab


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


DONE = {"text": "Done."}


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


def note(text: str) -> str:
    """Take a note."""
    return f"noted {len(text)} characters"


def marks(text, kind="canary|stored"):
    """Find the marked values in a text."""
    return set(re.findall(rf"(?:{kind})\d{{3}}", text))


@pytest.mark.parametrize("first", KINDS)
async def test_every_value_of_a_block_is_stored_replayed_and_accepted(first):
    """docs/reference/providers.md: by the provider that wrote it word for word, and by every other service."""
    lab = ProviderLab(tools=[note])
    for number, items in enumerate(BLOCKS[first]):
        is_call = '"note"' in json.dumps(items)
        lab.plan({"items": items}, DONE) if is_call else lab.plan({"items": [*items, *[DONE] * (first != "chat")]})
        assert (await lab.cold_turn(first, f"Question {number}")).status == "completed"
        assert marks(json.dumps(items)) <= marks(lab.document)
        lab.clear_refusals()
    if KINDS[first].keeps_conversation:
        await lab.lose_conversation()
    before = lab.session
    assert marks(await turn(lab, first, "Go on")) == marks(json.dumps(BLOCKS[first]), "canary")
    for second in [kind for kind in KINDS if kind != first]:
        lab.session = before
        sent_text = await turn(lab, second, "Go on elsewhere")
        assert sent_text.count("Question ") == len(BLOCKS[first])
        assert marks(sent_text)


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
