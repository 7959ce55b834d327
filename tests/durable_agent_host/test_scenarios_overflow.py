"""A request over the model's context window: the oldest groups are left out, and the call is made once more."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from durable_agent_host.providers.client_errors import explain_overflow
from tests.durable_agent_host.test_scenarios_journal import CrashingHost
from tests.kit import AgentHost, PracticeModel, running_host

APP = Path(__file__).parent / "apps" / "recovery"
TOO_LONG = {
    "Responses": (
        400,
        "context_length_exceeded",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
    ),
    "Stored": (
        400,
        "context_length_exceeded",
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 200500 tokens.",
    ),
    "Chat": (413, None, "Payload Too Large"),
    "Claude": (400, None, "prompt is too long: 208310 tokens > 200000 maximum"),
    "Gemini": (400, None, "The input token count (1250000) exceeds the maximum number of tokens allowed (1048576)."),
}
LONG = "word " * 400


@pytest.fixture(scope="module")
def host(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """A host with agents of every kind of client."""
    with running_host(tmp_path_factory.mktemp("overflow"), practice_model, app=APP) as running:
        yield running


def refusal(agent: str) -> dict[str, Any]:
    """A refusal of a request that is too long, in the words of the agent's service."""
    status, code, message = TOO_LONG[agent]
    return {"error": {"status": status, "code": code, "message": message}}


def talk(host: AgentHost, agent: str, session_id: str, *numbers: int) -> dict[str, Any]:
    """Run turns; gives the last answer."""
    answer = {}
    for number in numbers:
        response = host.run(agent, {"message": f"question-{number} {LONG}", "session_id": session_id})
        answer = response.json()
        assert response.ok, answer
    return answer


def questions(request: dict[str, Any]) -> list[int]:
    """Which questions a request has."""
    body = json.dumps(request["body"])
    return [number for number in range(9) if f"question-{number} " in body]


@pytest.mark.drawn(2)
@pytest.mark.parametrize("agent", TOO_LONG)
def test_a_request_that_is_too_long_is_made_again_with_less(host: AgentHost, model: PracticeModel, agent: str):
    """The record has everything, the context of this turn and the next ones does not have the oldest groups."""
    model.plan(*[{"text": f"Answer {n}."} for n in range(5)], refusal(agent), {"text": "Short."}, {"text": "Later."})
    answer = talk(host, agent, "long", *range(6))
    assert answer["response"] == "Short."
    *_, refused, repeated = model.requests()
    assert len(model.requests()) == 7
    if agent != "Stored":
        assert questions(refused) == [*range(6)]
    first, *_ = kept = questions(repeated)
    assert first > 0
    assert kept == [*range(first, 6)]
    talk(host, agent, "long", 6)
    if agent != "Stored":
        assert questions(model.requests()[-1]) == [*range(first, 7)]
    record = host.session(agent, "long")
    assert record["message_count"] == 14
    assert all(f"question-{n} " in json.dumps(record) for n in range(7))
    steps = host.get(f"/agents/{agent}/sessions/long/turns/{answer['turn_id']}/steps").json()["steps"]
    [retry] = [step for step in steps if step["kind"] == "retry"]
    assert "context window" in retry["reason"]


def test_a_request_that_stays_too_long_names_compaction(host: AgentHost, model: PracticeModel):
    """The call is made once more, not for ever; conversation and context are as they were."""
    model.plan({"text": "One."}, {"text": "Two."}, refusal("Responses"), refusal("Responses"), {"text": "Three."})
    talk(host, "Responses", "never", 0, 1)
    response = host.run("Responses", {"message": f"question-2 {LONG}", "session_id": "never"})
    assert response.status_code == 502
    assert "docs/guides/compaction.md" in response.json()["detail"]
    assert [questions(request) for request in model.requests()[2:]] == [[0, 1, 2], [2]]
    assert host.session("Responses", "never")["message_count"] == 4
    talk(host, "Responses", "never", 3)
    assert questions(model.requests()[-1]) == [0, 1, 3]


def test_the_strategy_of_the_agent_compacts(host: AgentHost, model: PracticeModel):
    """A summary whose threshold was not reached is made when the request is too long."""
    model.plan({"text": "A summary."}, times=None, user_text="1. [")
    model.plan(*[{"text": f"Answer {n}."} for n in range(3)], refusal("Responses"), {"text": "Short."})
    assert talk(host, "Summing", "sum", *range(4))["response"] == "Short."
    *_, refused, _summary, repeated = model.requests()
    assert questions(refused) == [*range(4)]
    assert "A summary." in json.dumps(repeated["body"])
    assert 3 in questions(repeated)
    assert 0 not in questions(repeated)


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("point", "refusals"),
    [
        ("journal.overflow.before_append", 2),
        ("journal.overflow.after_append", 1),
        ("journal.model.before_append:2", 1),
        ("turn.before_outcome", 1),
    ],
)
def test_a_kill_does_not_repeat_the_request_that_was_too_long(
    tmp_path: Path, model: PracticeModel, point: str, refusals: int
):
    """After the journal knows it, the request is the smaller one in every attempt."""
    crashing_host = CrashingHost(tmp_path, model, APP)
    try:
        model.plan(*[{"text": f"Answer {n}."} for n in range(3)])
        first_host = crashing_host.start()
        talk(first_host, "Responses", "s", *range(3))
        first_host.stop()
        before = len(model.requests())
        model.plan(refusal("Responses"), times=refusals, user_text="question-3")
        call = {"calls": [{"name": "find_word", "arguments": {"word": "x"}}]}
        model.plan(call, {"text": "Done."}, times=None, by_round=True, user_text="question-3")
        turn = crashing_host.run("Responses", point, message=f"question-3 {LONG}")
        assert turn["response"] == "Done.", turn
        requests = model.requests()[before:]
        assert [questions(request) for request in requests[:refusals]] == [[*range(4)]] * refusals
        repeated = requests[refusals:]
        assert {tuple(questions(request)) for request in repeated} == {(2, 3)}
        assert len(repeated) == (3 if point.startswith("journal.model") else 2)
    finally:
        crashing_host.stop()


MESSAGES = [
    "This model's maximum prompt length is 131072 but the request contains 537812.",
    "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the messages).",
    "input length and `max_tokens` exceed context limit: 188240 + 21333 > 204698",
    "Input is too long for requested model.",
    "Prompt contains 33000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "Please reduce the length of the messages or completion.",
    "the request exceeds the available context size. try increasing the context size or enable context shift",
    "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it",
    "the input length exceeds the context length",
    "prompt too long; exceeded max context length by 12 tokens",
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "This endpoint's maximum context length is 128000 tokens. However, you requested about 130000 tokens",
    "Unable to submit request because the input token count is 1194622 but model only supports up to 1048576.",
    "Your request exceeded model token limit: 262144",
    "Request body too large for gpt-4o model. Max size: 8000 tokens.",
    "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000",
    "The number of tokens to keep from the initial prompt is greater than the context length.",
    "prompt token count of 130000 exceeds the limit of 128000",
    "max_tokens must be at least 1, got -186.",
    "The engine prompt length 1327246 exceeds the max_model_len 131072. Please reduce prompt.",
    "Input length 5000 exceeds the maximum allowed input length of 4096 tokens.",
    "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 40000.",
    "max tokens of 200000 exceeded",
    "Input Tokens Exceeded: Number of input tokens exceeds maximum length.",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 7000 `inputs` tokens",
    "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]",
    "Prompt exceeds max length",
    "Bad request: prompt token count (5000) plus max_tokens (200) cannot exceed 4096.",
    "the number of input tokens 9000 cannot exceed the total tokens limit 8192 for this model",
    "However, the model is loaded with context length of only 4096 tokens, which is not enough.",
]


def test_the_words_of_services_are_known():
    """What services say of a request that is too long, as quoted in public, and what they say of others."""
    for message in MESSAGES:
        overflow = explain_overflow(message)
        assert overflow is not None, message
        assert 0 < overflow.share < 1
    with_answer = explain_overflow("input length and `max_tokens` exceed context limit: 150000 + 100000 > 200000")
    assert with_answer is not None
    assert with_answer.share == pytest.approx(0.8 * 100_000 / 150_000)
    for message in (
        "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Requested 40000.",
        "string too long. Expected a string with maximum length 64, but got a string with length 70 instead.",
        "max_tokens is too large: 200000. This model supports at most 16384 completion tokens.",
        "The model `gpt-9` does not exist",
    ):
        assert explain_overflow(message) is None, message
