"""Functions of an app that are wrong or missing: access is denied, and the reason is logged."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.kit import AgentHost, PracticeModel, running_host

APP = Path(__file__).parent / "apps" / "hooks"


@pytest.fixture(scope="module")
def hooks_host(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """Host the app whose `authorize` says neither yes nor no."""
    folder = tmp_path_factory.mktemp("guarded")
    release = str(folder / "release")
    with running_host(folder, practice_model, app=APP, WRONG="authorize", RELEASE=release) as host:
        yield host


@pytest.mark.parametrize(
    ("caller", "status"), [("wordy", 500), ("forgetful", 500), ("listing", 500), ("silent", 500), ("friend", 200)]
)
def test_only_true_grants_access(hooks_host: AgentHost, caller, status):
    """A string, a function or a list does not grant access, although it is truthy; nor does None."""
    run = hooks_host.run("Helper", "My secret is 4711.", headers={"x-who": "ann"})
    session = run.headers["x-ms-session-id"]
    response = httpx.get(
        f"{hooks_host.url}/api/agents/Helper/sessions/{session}", headers={"x-who": caller}, timeout=30
    )
    assert response.status_code == status
    assert ("4711" in response.text) == (caller == "friend")


def test_an_invalid_result_of_authorize_is_in_the_log(hooks_host: AgentHost):
    """Whoever runs the app reads what to change."""
    session = hooks_host.run("Helper", "Hello", headers={"x-who": "ann"}).headers["x-ms-session-id"]
    httpx.get(f"{hooks_host.url}/api/agents/Helper/sessions/{session}", headers={"x-who": "wordy"}, timeout=30)
    assert "authorize returned str: return True or False" in "".join(hooks_host.output)


def test_a_blocked_function_of_the_app_holds_up_no_other_kind(hooks_host: AgentHost, tmp_path_factory):
    """As many callers as there are threads wait for a plain `authorize`; another one is identified and answered."""
    release = tmp_path_factory.getbasetemp() / "guarded0" / "release"
    session = hooks_host.run("Helper", "Hello", headers={"x-who": "ann"}).headers["x-ms-session-id"]
    sessions = f"{hooks_host.url}/api/agents/Helper/sessions"
    limits = httpx.Limits(max_connections=50)
    with httpx.Client(timeout=60, limits=limits) as client, ThreadPoolExecutor(40) as threads:

        def read(who: str) -> int:
            return client.get(f"{sessions}/{session}", headers={"x-who": who}).status_code

        blocked = [threads.submit(read, "slow") for _ in range(39)]
        try:
            assert [read("ann") for _ in range(3)] == [200] * 3
            assert not any(future.done() for future in blocked)
        finally:
            release.touch()
        assert {future.result() for future in blocked} == {200}


def test_another_approver_needs_identify(practice_model: PracticeModel, model: PracticeModel, tmp_path: Path):
    """Without identified callers no caller is another one: the approval is rejected with the reason."""
    model.plan({"calls": [{"name": "pay", "arguments": {"amount": 5}}]})
    with running_host(tmp_path, practice_model, app=APP, WRONG="nobody") as host:
        pending_turn = host.run("Helper", {"message": "Pay 5"}).json()
        approval = {"call_id": pending_turn["pending_calls"][0]["call_id"], "approved": True}
        response = httpx.post(f"{pending_turn['turn_url']}/answers", json=approval, timeout=30)
        assert response.status_code == 403
        assert "the app has to identify its callers" in response.json()["detail"]


def test_a_tool_that_was_wrapped_twice_does_not_run(
    practice_model: PracticeModel, model: PracticeModel, tmp_path: Path
):
    """The declarations of the inner tool, such as its approver, would be lost."""
    model.plan({"calls": [{"name": "unknown_function", "arguments": {"amount": 5}}]})
    with running_host(tmp_path, practice_model, app=APP, WRONG="twice") as host:
        response = host.run("Helper", {"message": "Pay 5"})
        assert response.status_code >= 400
        assert "'pay' was made a tool twice" in response.text
        assert model.requests() == []
