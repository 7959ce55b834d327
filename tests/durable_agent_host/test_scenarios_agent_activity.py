"""An agent in an activity of the app's own orchestration: journaled, folded, and resumed after a crash."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.durable_agent_host.test_scenarios_journal import call
from tests.kit import AgentHost, Lives, PracticeModel, start_host
from tests.processes import wait_until

APP = Path(__file__).parent / "apps" / "own_orchestration"


def start_orchestration(host: AgentHost, name: str, instance_id: str = "one") -> None:
    """Start an orchestration."""
    assert requests.post(f"{host.management}/orchestrators/{name}/{instance_id}").status_code == 202


def status(host: AgentHost, instance_id: str = "one") -> dict[str, Any]:
    """Read what has become of it."""
    return requests.get(f"{host.management}/instances/{instance_id}").json()


def wait_for_end(host: AgentHost, instance_id: str = "one") -> dict[str, Any]:
    """Wait for its end."""

    def poll() -> dict[str, Any] | None:
        instance = status(host, instance_id)
        return instance if instance["runtimeStatus"] in {"Completed", "Failed"} else None

    return wait_until(poll, 60)


@pytest.fixture
def app_lives(lives: Callable[..., Lives]) -> Lives:
    """The app."""
    return lives(APP)


def traces(folder: Path) -> list[str]:
    """What the tools have left."""
    return (folder / "ledger.txt").read_text().splitlines()


def script(model: PracticeModel) -> None:
    """Script both calls of the orchestration, so that a request that is made again gets the same answer."""
    rain = ({"calls": [call("note", text="rain")]}, {"text": "It rains."})
    snow = ({"calls": [call("note", text="snow"), call("note", text="ice")]}, {"text": "It snows."})
    model.plan(*rain, by_round=True, times=None, user_text="Write about rain.")
    model.plan(*snow, by_round=True, times=None, user_text="Write about snow.")


def inputs(model: PracticeModel) -> list[Any]:
    """What the model received, call by call."""
    return [request["body"]["input"] for request in model.requests()]


def test_an_orchestration_of_the_app_calls_an_agent_twice(app_lives: Lives, model: PracticeModel, tmp_path: Path):
    """Each call is one activity; the second continues the conversation of the first, call ids included."""
    script(model)
    start_orchestration(app_lives.host, "story")
    instance = wait_for_end(app_lives.host)
    assert instance["runtimeStatus"] == "Completed", instance
    assert (instance["output"]["first"], instance["output"]["second"]) == ("It rains.", "It snows.")
    assert traces(tmp_path)[:3] == ["order rain", "note rain", "order snow"]
    assert sorted(traces(tmp_path)[3:]) == ["note ice", "note snow"]  # calls of one answer run side by side
    first, second, third, _ = inputs(model)
    assert first[-1]["content"][0]["text"] == "Write about rain."
    assert third[: len(second)] == second
    assert third[-1]["content"][0]["text"] == "Write about snow."
    assert instance["output"]["usage"]["total_token_count"] > 0


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    "point", ["journal.model.after_append:2", "journal.tool.after_append:2", "turn.after_outcome:2", "turn.after_open"]
)
def test_finished_steps_are_not_repeated(model: PracticeModel, tmp_path: Path, lives, point: str):
    """The host is killed in the activity: each model call and each tool call is made once, and the answer is whole."""
    script(model)
    app_lives = lives(APP, DURABLE_AGENT_HOST_CRASH=point)
    with suppress(requests.RequestException):
        start_orchestration(app_lives.host, "story")
    app_lives.host.process.wait(60)
    app_lives.host.kill()
    next_host = start_host(tmp_path / "0", model, app=APP, LEDGER=str(tmp_path / "ledger.txt"))
    try:
        instance = wait_for_end(next_host)
    finally:
        next_host.kill()
    assert (instance["output"]["first"], instance["output"]["second"]) == ("It rains.", "It snows.")
    notes_in_ledger = [line for line in traces(tmp_path) if line.startswith("note")]
    assert (notes_in_ledger[0], len(notes_in_ledger)) == ("note rain", len({*notes_in_ledger})), notes_in_ledger
    # The last two run side by side: when the process dies after the result of one, the other may be in doubt. Then the
    # model is told, and it does not run again, whether it had begun or not.
    outputs = [item["output"] for item in inputs(model)[-1] if item["type"] == "function_call_output"]
    unknown_outcomes = [output for output in outputs if not output.startswith("noted ")]
    assert len(unknown_outcomes) <= point.startswith("journal.tool"), outputs
    missing = {"note rain", "note snow", "note ice"} - {*notes_in_ledger}
    assert len(missing) <= len(unknown_outcomes), (missing, outputs)
    assert all("not known" in output for output in unknown_outcomes), unknown_outcomes
    assert len(model.requests()) == 4
    arguments = [item["arguments"] for item in inputs(model)[-1] if item["type"] == "function_call"]
    assert arguments == ['{"text": "rain"}', '{"text": "snow"}', '{"text": "ice"}'], arguments


def test_a_person_approves_a_call_of_an_agent_in_an_activity(app_lives: Lives, model: PracticeModel, tmp_path: Path):
    """The call returns its pending calls; called again with approvals it continues, without another model call."""
    model.plan({"text": "It rains."}, user_text="Write about rain.")
    model.plan(
        {"calls": [call("pay", amount=3)]}, {"text": "Paid."}, by_round=True, times=None, user_text="Write about snow."
    )
    start_orchestration(app_lives.host, "story")
    (pending_call,) = wait_until(lambda: status(app_lives.host)["customStatus"])
    assert (pending_call["name"], pending_call["arguments"]) == ("pay", {"amount": 3}), pending_call
    url = f"{app_lives.host.management}/instances/one/raiseEvent/answers"
    assert requests.post(url, json={pending_call["call_id"]: {"approved": True}}).status_code == 202
    instance = wait_for_end(app_lives.host)
    assert instance["output"]["second"] == "Paid."
    assert traces(tmp_path) == ["order rain", "order snow", "order snow", "pay 3.0"]
    assert len(model.requests()) == 3


def test_an_input_without_a_call_id_is_rejected_with_a_hint(app_lives: Lives, model: PracticeModel):
    """The orchestration fails, and the model is not asked."""
    start_orchestration(app_lives.host, "careless")
    instance = wait_for_end(app_lives.host)
    assert instance["runtimeStatus"] == "Failed"
    assert "agent_call(context, value)" in instance["output"]
    assert not model.requests()


def test_a_failed_run_fails_the_activity(app_lives: Lives, model: PracticeModel):
    """With the reason; the SDK's own retries get the same end, and do not pay for it again."""
    model.plan({"error": {"status": 400, "message": "The request is refused."}}, times=None)
    start_orchestration(app_lives.host, "stubborn")
    instance = wait_for_end(app_lives.host)
    assert instance["runtimeStatus"] == "Failed"
    assert "The request is refused" in instance["output"]
    assert len(model.requests()) == 1
