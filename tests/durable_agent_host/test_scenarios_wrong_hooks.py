"""Functions of an app that are wrong or missing: nobody is let in, and the reason is said."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.kit import AgentHost, PracticeModel, running_host

APP = Path(__file__).parent / "apps" / "hooks"


@pytest.fixture(scope="module")
def guarded(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """Host the app whose `authorize` says neither yes nor no."""
    with running_host(tmp_path_factory.mktemp("guarded"), practice_model, app=APP, WRONG="authorize") as host:
        yield host


@pytest.mark.parametrize(
    ("who", "status"),
    [("wordy", 500), ("forgetful", 500), ("listing", 500), ("silent", 500), ("friend", 200)],
)
def test_only_a_yes_lets_somebody_in(guarded: AgentHost, who, status):
    """A word, a function or a list is no yes, whatever Python takes it for, and nor is no word at all."""
    run = guarded.run("Helper", "My secret is 4711.", headers={"x-who": "ann"})
    session = run.headers["x-ms-session-id"]
    seen = httpx.get(f"{guarded.url}/api/agents/Helper/sessions/{session}", headers={"x-who": who}, timeout=30)
    assert seen.status_code == status
    assert ("4711" in seen.text) == (who == "friend")


def test_what_authorize_returned_is_in_the_log(guarded: AgentHost):
    """Whoever runs the app reads what to change."""
    session = guarded.run("Helper", "Hello", headers={"x-who": "ann"}).headers["x-ms-session-id"]
    httpx.get(f"{guarded.url}/api/agents/Helper/sessions/{session}", headers={"x-who": "wordy"}, timeout=30)
    assert "authorize returned str: return True or False" in "".join(guarded.output)


def test_four_eyes_without_identify_say_what_is_missing(
    practice_model: PracticeModel, model: PracticeModel, tmp_path: Path
):
    """Nobody is another one where nobody is known: the answer is refused, and says why."""
    model.plan({"calls": [{"name": "pay", "arguments": {"amount": 5}}]})
    with running_host(tmp_path, practice_model, app=APP, WRONG="nobody") as host:
        waits = host.run("Helper", {"message": "Pay 5"}).json()
        answer = {"call_id": waits["pending_approvals"][0]["call_id"], "approved": True}
        refused = httpx.post(f"{waits['turn_url']}/approvals", json=answer, timeout=30)
        assert refused.status_code == 403
        assert "does not identify its callers: it needs identify" in refused.json()["detail"]


def test_a_tool_that_was_made_twice_does_not_run(practice_model: PracticeModel, model: PracticeModel, tmp_path: Path):
    """What the inner one declares, such as that somebody else has to approve, would be lost."""
    model.plan({"calls": [{"name": "unknown_function", "arguments": {"amount": 5}}]})
    with running_host(tmp_path, practice_model, app=APP, WRONG="twice") as host:
        refused = host.run("Helper", {"message": "Pay 5"})
        assert refused.status_code >= 400
        assert "'pay' was made a tool twice" in refused.text
        assert model.requests() == []
