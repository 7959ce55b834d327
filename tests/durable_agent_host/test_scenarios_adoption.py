"""Sessions of before: who may take them over, where the setting names a role."""

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from tests.durable_agent_host.test_scenarios_owners import APP, SESSIONS, Site
from tests.kit import running_host

MESSAGE_TEXT = "words from before"
CURATOR, OTHERS = "cu:curator", ("ann", "vic:visitor")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """An app with callers who are known, on data of the same app without `identify`; curators may adopt."""
    data, ledger = tmp_path_factory.mktemp("adoption"), tmp_path_factory.mktemp("ledger") / "asked.txt"
    ledger.touch()
    with running_host(data, None, app=APP, LEDGER=str(ledger), NOBODY_IS_KNOWN="1") as before:
        for name in ("old-1", "old-2", "old-3"):
            assert before.run("Echo", MESSAGE_TEXT, session_id=name).ok
    env = {"LEDGER": str(ledger), "DURABLE_AGENT_HOST_ADOPT_SESSIONS": "role:curator"}
    with running_host(data, None, app=APP, **env) as host:
        yield Site(host, data, ledger)


def plain(response: requests.Response, name: str) -> Any:
    """Give all that an answer says but its date, and without the name."""
    headers = {field.lower(): value for field, value in response.headers.items() if field.lower() != "date"}
    return repr((response.status_code, sorted(headers.items()), response.text)).replace(name, "NAME")


def test_an_unowned_session_is_visible_to_those_who_may_adopt_it(site: Site):
    """Reading, export and files are there for them, and for others as if there were none; reading adopts nothing."""
    state_before = site.host.state("Echo", "old-1")
    for path in ("", "/export", "/verify", "/files"):
        assert site.ask("GET", f"{SESSIONS}/old-1{path}", CURATOR).ok
        for caller in OTHERS:
            response = site.ask("GET", f"{SESSIONS}/old-1{path}", caller)
            missing_response = site.ask("GET", f"{SESSIONS}/old-0{path}", caller)
            assert missing_response.status_code == 404
            assert plain(response, "old-1") == plain(missing_response, "old-0")
    assert not [caller for caller in (CURATOR, *OTHERS) if "old-1" in site.ask("GET", SESSIONS, caller).text]
    assert site.host.state("Echo", "old-1") == state_before


def test_copies_of_an_unowned_session_belong_to_their_creator(site: Site):
    """A fork has an owner; the original has none after it; who may not adopt can make none."""
    state_before = site.host.state("Echo", "old-2")
    for caller in OTHERS:
        assert site.ask("POST", f"{SESSIONS}/old-2/fork", caller, json={"session_id": "copy"}).status_code == 404
    assert site.ask("POST", f"{SESSIONS}/old-2/fork", CURATOR, json={"session_id": "copy"}).status_code == 201
    assert "owner" not in site.ask("GET", f"{SESSIONS}/old-2/export", CURATOR).text
    assert MESSAGE_TEXT in site.ask("GET", f"{SESSIONS}/copy", CURATOR).text
    assert "copy" in site.ask("GET", SESSIONS, CURATOR).text
    assert site.ask("GET", f"{SESSIONS}/copy", "zoe").status_code == 404
    assert site.host.state("Echo", "old-2") == state_before


def test_the_first_turn_adopts(site: Site):
    """Who may not is refused; of who may, the first has it."""
    state_before = site.host.state("Echo", "old-3")
    for caller in OTHERS:
        assert site.run(caller, f"words of {caller}.", "old-3").status_code == 404
    assert site.host.state("Echo", "old-3") == state_before
    assert site.run(CURATOR, "mine", "old-3").ok
    assert site.ask("GET", f"{SESSIONS}/old-3", CURATOR).json()["message_count"] == 4
    assert "old-3" in site.ask("GET", SESSIONS, CURATOR).text
    assert site.run("dan:curator", "mine, too", "old-3").status_code == 404
    stored_owner = site.host.state("Echo", "old-3")["data"]["extensionData"]["durableAgentHost"]["owner"]
    assert stored_owner == {"principal": "cu"}
