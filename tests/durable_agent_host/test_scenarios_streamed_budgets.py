"""Budgets: what a model has said counts, although its call comes to no end or the service gives no figures."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from durable_agent_host.codec.journal_entry import decode_journal_entry, encode_journal_entry
from durable_agent_host.features.budgets.accounting import usage_from_journal
from durable_agent_host.features.budgets.entries import entry_of_raise, entry_of_reservation
from durable_agent_host.model.budget import Budget, Budgets, Reservation
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.journal_entry import (
    JournalStep,
    ModelCallCompletedEntry,
)
from durable_agent_host.model.log_entry import LogRecord
from durable_agent_host.turn_log.journal import JournalState
from tests.durable_agent_host.test_scenarios_budgets import BUDGETS, USAGE, budget_error, read_usage
from tests.durable_agent_host.test_scenarios_cancel import cancel, characters_of, start
from tests.kit import AgentHost, PracticeModel, running_host
from tests.processes import wait_until

LONG = {"text": "word " * 40_000, "chunk_characters": 2000, "delay_milliseconds": 100}
OUTPUT_PRICE = 100 / 1_000_000


@pytest.fixture(scope="module")
def _budgets(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    data = tmp_path_factory.mktemp("streamed-budgets")
    with running_host(data / "host", practice_model, app=BUDGETS, LEDGER=str(data / "ledger.txt")) as running:
        yield running


@pytest.fixture
def budgets(_budgets: AgentHost, model: PracticeModel) -> AgentHost:
    """A host with agents that may spend only so much."""
    return _budgets


@pytest.mark.parametrize("agent", ["Calls", "Free"])
def test_a_cancelled_response_counts_as_far_as_it_came(budgets: AgentHost, model: PracticeModel, agent: str):
    """With limits and without, its characters count as output tokens; a fork before the turn begins with them, too."""
    model.plan(LONG)
    turn = start(budgets, agent, "go", session := uuid4().hex)
    wait_until(lambda: characters_of(turn["turn_url"]) > 10_000)
    assert cancel(turn).status_code == 202
    final_turn = budgets.end_of_turn(turn["turn_url"])
    length = len(final_turn["response"])
    assert (final_turn["status"], length > 10_000) == ("cancelled", True), final_turn
    figures = read_usage(budgets, agent, session)
    assert length / 4 <= figures["tokens"] < length / 4 + 2000
    assert figures["cost"] >= length / 4 * OUTPUT_PRICE
    assert (figures["model_calls"], final_turn["spent"]) == (1, figures)
    body = f'{{"at_turn": "{turn["turn_id"]}", "before": true}}'
    fork = budgets.post(f"/agents/{agent}/sessions/{session}/fork", body.encode())
    assert fork.ok, fork.text
    assert read_usage(budgets, agent, fork.json()["session_id"]) == figures


@pytest.mark.parametrize("agent", ["Calls", "Free"])
def test_a_stream_that_breaks_off_counts_as_far_as_it_came(budgets: AgentHost, model: PracticeModel, agent: str):
    """It counts in addition to the call that repeats it, which counts by its usage alone."""
    broken = {"text": "word " * 4000, "chunk_characters": 1000, "break_after_events": 16}
    model.plan(broken, {"text": "Done. " * 1000, "usage": USAGE})
    response = budgets.run(agent, {"message": "go", "session_id": (session := uuid4().hex)})
    assert (response.status_code, len(model.requests())) == (200, 2)
    figures = read_usage(budgets, agent, session)
    assert (figures["model_calls"], 2500 < figures["tokens"] - 400 < 5000) == (2, True), figures


@pytest.mark.parametrize(("agent", "budget"), [("Tokens", "turn's budget of 1000"), ("Cost", "session's budget of")])
def test_a_response_is_stopped_once_it_crosses_the_budget(budgets: AgentHost, model: PracticeModel, agent, budget):
    """The turn fails with the figure while the model still speaks, and what it had said counts."""
    model.plan(LONG)
    detail = budget_error(budgets.run(agent, {"message": "go", "session_id": (session := uuid4().hex)}))
    assert f"{budget}" in detail
    assert "in the middle of the model's answer" in detail
    assert 1000 < read_usage(budgets, agent, session)["tokens"] < 10_000
    assert budgets.session(agent, session)["messages"] == []


def journal_of(*steps: JournalStep) -> JournalState:
    """Give what a log of these steps says."""
    journal = JournalState()
    for offset, step in enumerate(steps):
        entry = encode_journal_entry(step)
        assert decode_journal_entry(entry) == step
        journal.add(LogRecord(offset, 1, entry))
    return journal


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (None, 70),
        ({"inputTokenCount": 3, "outputTokenCount": 4, "totalTokenCount": 7}, 7),
        ({"inputTokenCount": None, "outputTokenCount": 0, "totalTokenCount": None}, 70),
        ({"inputTokenCount": None, "outputTokenCount": -5, "extensionData": {"reasoning_output_token_count": 0}}, 70),
    ],
)
def test_a_response_without_usage_counts_its_reservation(usage, tokens: int):
    """A call with token counts is counted by them alone, one without as was reserved and raised."""
    response = {"messages": []} | ({"usage": usage} if usage else {})
    call = CallPath().model_call(0)
    journal = journal_of(
        entry_of_reservation(call, Reservation(50), 0.5, continues=False),
        entry_of_raise(call, Reservation(70)),
        ModelCallCompletedEntry(call, response),
    )
    figures = usage_from_journal(journal, Budgets(turn=Budget(tokens=1000)))
    assert figures is not None
    assert (figures.tokens, figures.model_calls) == (tokens, 1)
