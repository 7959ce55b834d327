"""Sessions of before: who may take them over."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.durable_agent_host.test_scenarios_owners import APP, SESSIONS, Site
from tests.kit import running_host

UNOWNED_SESSIONS = ("old-1", "old-2", "old-3", "race-1", "race-2")
"""Sessions of before: of the races two at once want one."""
MESSAGE_TEXT = "words from before"
CALLERS = ("ann", "cu:curator", "vic:visitor")
ADOPTERS: dict[str, tuple[str, ...]] = {"anybody": CALLERS, "nobody": (), "role:curator": ("cu:curator",)}
"""Setting → who may adopt."""


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of an app without `identify`."""
    data = tmp_path_factory.mktemp("before") / "data"
    with running_host(data, None, app=APP, LEDGER=str(data / "asked.txt"), NOBODY_IS_KNOWN="1") as host:
        for name in UNOWNED_SESSIONS:
            assert host.run("Echo", MESSAGE_TEXT, session_id=name).ok
    return data


class Settings(Site):
    """The host with one setting, and who may adopt by it."""

    may: tuple[str, ...] = ()

    def state(self, session: str) -> Any:
        """Read what is stored of a session."""
        return self.host.state("Echo", session)


@pytest.fixture(scope="module", params=ADOPTERS)
def site(request: pytest.FixtureRequest, before: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """The same app and data, with callers who are known, for each setting."""
    data, ledger = tmp_path_factory.mktemp("after") / "data", tmp_path_factory.mktemp("ledger") / "asked.txt"
    shutil.copytree(before, data)
    ledger.touch()
    env = {"LEDGER": str(ledger), "DURABLE_AGENT_HOST_ADOPT_SESSIONS": request.param}
    with running_host(data, None, app=APP, **env) as host:
        settings = Settings(host, data, ledger)
        settings.may = ADOPTERS[request.param]
        yield settings


def plain(response: requests.Response, name: str) -> Any:
    """Give all that an answer says but its date, and without the name."""
    headers = {field.lower(): value for field, value in response.headers.items() if field.lower() != "date"}
    return repr((response.status_code, sorted(headers.items()), response.text)).replace(name, "NAME")


@pytest.mark.parametrize("caller", CALLERS)
def test_an_unowned_session_is_visible_to_those_who_may_adopt_it(site: Settings, caller: str):
    """Reading, export and files are there for them, and for others as if there were none; reading adopts nothing."""
    state_before = site.state("old-1")
    for path in ("", "/export", "/verify", "/files"):
        response = site.ask("GET", f"{SESSIONS}/old-1{path}", caller)
        if caller in site.may:
            assert response.ok, response.text
        else:
            missing_response = site.ask("GET", f"{SESSIONS}/old-0{path}", caller)
            assert missing_response.status_code == 404
            assert plain(response, "old-1") == plain(missing_response, "old-0")
    assert "old-1" not in site.ask("GET", SESSIONS, caller).text
    assert site.state("old-1") == state_before


def test_copies_of_an_unowned_session_belong_to_their_creator(site: Settings):
    """A fork has an owner; the original has none after it; who may not adopt can make none."""
    state_before = site.state("old-2")
    for caller in CALLERS:
        name = caller.partition(":")[0]
        fork_response = site.ask("POST", f"{SESSIONS}/old-2/fork", caller, json={"session_id": f"fork-of-{name}"})
        export_response = site.ask("GET", f"{SESSIONS}/old-2/export", caller)
        if caller not in site.may:
            assert (fork_response.status_code, export_response.status_code) == (404, 404)
            continue
        assert fork_response.status_code == 201, fork_response.text
        assert "owner" not in export_response.text
        copy = f"fork-of-{name}"
        assert MESSAGE_TEXT in site.ask("GET", f"{SESSIONS}/{copy}", caller).text
        assert copy in site.ask("GET", SESSIONS, caller).text
        assert site.ask("GET", f"{SESSIONS}/{copy}", "zoe").status_code == 404
    assert site.state("old-2") == state_before


def test_the_first_turn_adopts(site: Settings):
    """Who may not is refused; of who may, the first has it."""
    state_before, owner = site.state("old-3"), None
    for caller in ("vic:visitor", "cu:curator", "ann"):
        response = site.run(caller, f"words of {caller}.", "old-3")
        if caller in site.may and owner is None:
            assert response.ok, response.text
            owner = caller
            assert site.ask("GET", f"{SESSIONS}/old-3", caller).json()["message_count"] == 4
        else:
            assert response.status_code == 404
            assert site.ask("GET", f"{SESSIONS}/old-3", caller).status_code == 404
        assert ("old-3" in site.ask("GET", SESSIONS, caller).text) == response.ok
    if owner is None:
        assert site.state("old-3") == state_before
    else:
        stored_owner = site.state("old-3")["data"]["extensionData"]["durableAgentHost"]["owner"]
        assert stored_owner == {"principal": owner.partition(":")[0]}
