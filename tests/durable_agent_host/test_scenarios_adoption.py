"""Sessions of before: who may take them over, with names that are shared and with names of one's own."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.durable_agent_host.test_scenarios_owners import APP, SESSIONS, Place
from tests.kit import running_host

OLD = ("old-1", "old-2", "old-3", "race-1", "race-2")
"""Sessions of before: of the races two at once want one."""
WORDS = "words from before"
EVERYBODY = ("ann", "cu:curator", "vic:visitor")
MAY: dict[str, tuple[str, ...]] = {"anybody": EVERYBODY, "nobody": (), "role:curator": ("cu:curator",)}
"""Setting → who may adopt."""


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of an app that identified nobody."""
    data = tmp_path_factory.mktemp("before") / "data"
    with running_host(data, None, app=APP, LEDGER=str(data / "asked.txt"), NOBODY_IS_KNOWN="1") as host:
        for name in OLD:
            assert host.run("Echo", WORDS, session_id=name).ok
    return data


class Settings(Place):
    """The host with one setting, and who may adopt by it."""

    may: tuple[str, ...] = ()
    has_own_names = False

    def state(self, session: str) -> Any:
        """Read what is stored of a session."""
        return self.host.state("Echo", session)


@pytest.fixture(
    scope="module",
    params=[(adopters, names) for adopters in MAY for names in ("shared", "own")],
    ids="-".join,
)
def place(request: pytest.FixtureRequest, before: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """The same app and data, with callers who are known, for each setting."""
    adopters, names = request.param
    data, ledger = tmp_path_factory.mktemp("after") / "data", tmp_path_factory.mktemp("ledger") / "asked.txt"
    shutil.copytree(before, data)
    ledger.touch()
    env = {"DURABLE_AGENT_HOST_ADOPT_SESSIONS": adopters, "DURABLE_AGENT_HOST_SESSION_NAMES": names}
    with running_host(data, None, app=APP, LEDGER=str(ledger), **env) as host:
        it = Settings(host, data, ledger)
        it.may, it.has_own_names = MAY[adopters], names == "own"
        yield it


def plain(answer: requests.Response, name: str) -> Any:
    """Give all that an answer says but its date, and without the name."""
    headers = {field.lower(): value for field, value in answer.headers.items() if field.lower() != "date"}
    return repr((answer.status_code, sorted(headers.items()), answer.text)).replace(name, "NAME")


@pytest.mark.parametrize("who", EVERYBODY)
def test_a_session_of_before_exists_for_who_may_adopt_it(place: Settings, who: str):
    """Reading, export and files are there for them, and for others as if there were none; reading adopts nothing."""
    stored = place.state("old-1")
    for path in ("", "/export", "/verify", "/files"):
        answer = place.ask("GET", f"{SESSIONS}/old-1{path}", who)
        if who in place.may:
            assert answer.ok, answer.text
        else:
            never = place.ask("GET", f"{SESSIONS}/old-0{path}", who)
            assert never.status_code == 404
            assert plain(answer, "old-1") == plain(never, "old-0")
    assert "old-1" not in place.ask("GET", SESSIONS, who).text
    assert place.state("old-1") == stored


def test_copies_of_a_session_of_before_belong_to_who_makes_them(place: Settings):
    """A fork and an import have an owner; the original has none after it; who may not adopt can make none."""
    stored = place.state("old-2")
    for who in EVERYBODY:
        name = who.partition(":")[0]
        fork = place.ask("POST", f"{SESSIONS}/old-2/fork", who, json={"session_id": f"fork-of-{name}"})
        export = place.ask("GET", f"{SESSIONS}/old-2/export", who)
        if who not in place.may:
            assert (fork.status_code, export.status_code) == (404, 404)
            continue
        assert fork.status_code == 201, fork.text
        assert "owner" not in export.text
        imported = place.ask("POST", f"{SESSIONS}/import-of-{name}/import", who, data=export.content)
        assert imported.status_code == 201, imported.text
        for copy in (f"fork-of-{name}", f"import-of-{name}"):
            assert WORDS in place.ask("GET", f"{SESSIONS}/{copy}", who).text
            assert copy in place.ask("GET", SESSIONS, who).text
            assert place.ask("GET", f"{SESSIONS}/{copy}", "zoe").status_code == 404
    assert place.state("old-2") == stored


def test_the_first_turn_adopts(place: Settings):
    """Who may not is refused, or has a session of his own of that name; of who may, the first has it."""
    stored, owner = place.state("old-3"), None
    for who in ("vic:visitor", "cu:curator", "ann"):
        answer = place.run(who, f"words of {who}.", "old-3")
        if who in place.may and owner is None:
            assert answer.ok, answer.text
            owner = who
            assert place.ask("GET", f"{SESSIONS}/old-3", who).json()["message_count"] == 4
        elif place.has_own_names:
            assert answer.ok, answer.text
            said = place.ask("GET", f"{SESSIONS}/old-3", who).json()
            assert said["message_count"] == 2
            assert WORDS not in json.dumps(said)
        else:
            assert answer.status_code == 404
            assert place.ask("GET", f"{SESSIONS}/old-3", who).status_code == 404
        assert ("old-3" in place.ask("GET", SESSIONS, who).text) == answer.ok
    if owner is None:
        assert place.state("old-3") == stored
    else:
        held = place.state("old-3")["data"]["extensionData"]["durableAgentHost"]["owner"]
        assert held == {"principal": owner.partition(":")[0]}
