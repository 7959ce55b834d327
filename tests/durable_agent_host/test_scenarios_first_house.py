"""What the code before the move of the rooms has stored is read and carried on; see `tests/replay/first_house`.

The old code recorded what it does from there itself: each request to the model, whole, and each answer must be equal.
"""

import json
import lzma
import re
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.durable_agent_host.sse_client import Event, Reader
from tests.kit import start_host, start_model
from tests.kit_services import turn_log_of
from tests.replay.first_house.play import (
    ELSEWHERE,
    EMBEDDED,
    FILES,
    SETTINGS,
    Play,
    Site,
    carry_on,
    fork,
    ledger,
    look,
    mark,
    prepare,
)
from tests.replay.first_house.stores import restore

HOUSE = Path(__file__).parents[1] / "replay" / "first_house"
APP = Path(__file__).parent / "apps" / "first_house"


@dataclass
class Second:
    """A host of today on what the first house has left.

    Attributes:
        site: the host, and a model that has forgotten all.
        play: what was played.
        before: what the old code showed before it was killed.
        after: what the old code did from there.
        seen: what today's code shows.
        done: what today's code does from there.
    """

    site: Site
    play: Play
    before: dict[str, Any]
    after: dict[str, Any]
    seen: dict[str, Any]
    done: dict[str, Any]


def load(name: str) -> dict[str, Any]:
    """Read what the old code has shown or done."""
    return json.loads(lzma.decompress((HOUSE / f"{name}.json.xz").read_bytes()))


@pytest.fixture(scope="module", params=["embedded", "redis"])
def second(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Second]:
    """A host of today that has carried on, on a copy, by the store of its turn log."""
    kind, folder = request.param, tmp_path_factory.mktemp(request.param)
    play = EMBEDDED if kind == "embedded" else ELSEWHERE
    before, after = load(f"{kind}-before"), load(f"{kind}-after")
    with tarfile.open(HOUSE / f"{kind}.tar.xz") as archive:
        archive.extractall(folder / "first", filter="data")
    with turn_log_of(kind, folder) as store:
        if kind != "embedded":
            restore(kind, store, json.loads((folder / "first" / "store.json").read_text()))
        model = start_model()
        prepare(Site("", model.url), play)
        env = store | SETTINGS | {"FIRST_HOUSE": str(folder / "first" / FILES)}
        host = start_host(folder / "first" / "data", model, app=APP, **env)
        try:
            site = Site(host.url, model.url)
            seen = look(site, play, before["turns"])
            done = carry_on(site, play, before["under_way"])
            done["ledger"] = ledger(folder / "first" / FILES)
            yield Second(site, play, before, after, seen, done)
        finally:
            host.stop()
            model.stop()
            shutil.rmtree(folder)


def kept_elsewhere(name: str) -> bool:
    """Tell whether a history provider keeps a session: the old code made up ids there, and now the model's are kept."""
    return name.partition("/")[2] in ELSEWHERE_KEPT or name[1:].partition("/")[0] in ELSEWHERE_KEPT


ELSEWHERE_KEPT = {"noted", "folded", "cut-noted"}


def without_made_up_ids(value: Any) -> Any:
    """Leave out of requests what the old code did not send back of the model's items, and number their calls anew."""
    numbers: dict[str, str] = {}
    text = json.dumps(_without_item_fields(value), sort_keys=True)
    return json.loads(re.sub(r'"new-\d+"', lambda found: numbers.setdefault(found[0], f'"call-{len(numbers)}"'), text))


def _without_item_fields(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_item_fields(one) for name, one in value.items() if name not in _OF_ITEMS}
    return [_without_item_fields(one) for one in value] if isinstance(value, list) else value


_OF_ITEMS = {"id", "status", "logprobs"}


def without_identity(value: Any) -> Any:
    """Leave out of messages what tells which of the model's items they were."""
    if isinstance(value, dict):
        return {name: without_identity(one) for name, one in value.items() if name != "extensionData"}
    return [without_identity(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("what", ["sessions", "exports", "views", "events"])
def test_what_was_stored_reads_as_before(second: Second, what: str):
    """Sessions, their exports, ended turns and their events are what the old code gave."""
    seen = second.seen[what]
    if what == "sessions":  # they come in pages since then, and each of these has one
        assert [session.pop("previous") for session in seen.values()] == [None] * len(seen)
    assert seen == second.before[what]


def test_the_model_is_asked_what_the_old_code_would_have_asked(second: Second):
    """Turns that were cut off, waited or were queued, and the next turn of every session: each request is equal."""
    assert {f"[{session}/9]" for _, session in second.play.all} <= set(second.done["requests"])
    assert sorted(second.done["requests"]) == sorted(second.after["requests"])
    for name, asked in second.after["requests"].items():
        done = second.done["requests"][name]
        if kept_elsewhere(name):
            done, asked = without_made_up_ids(done), without_made_up_ids(asked)  # noqa: PLW2901 - the same requests
        assert done == asked, name


def test_what_was_finished_is_not_done_again(second: Second):
    """A cut-off turn pays for the one model call that was cut off; tools that have run do not run again."""
    assert second.done["ledger"] == second.after["ledger"]
    lines = [line for line in second.done["ledger"] if line.startswith(("note cut", "linger cut-tool in", "pay"))]
    assert sorted(set(lines)) == lines
    cut_in_the_model = [session for agent, session in second.play.cut if agent != "Team"]
    assert {len(second.done["requests"][f"[{session}/0]"]) for session in cut_in_the_model} == {1}


def test_turns_end_as_with_the_old_code(second: Second):
    """Answers, statuses and usage of turns that were under way, and of the next ones."""
    done, after = (dict(turns) for turns in (second.done["turns"], second.after["turns"]))
    for name in filter(kept_elsewhere, after):  # the model counts the characters of ids, too
        done[name], after[name] = done[name] | {"usage": None}, after[name] | {"usage": None}
    assert done == after
    statuses = {name: turn["status"] for name, turn in second.done["turns"].items() if "http" not in turn}
    assert {name for name, status in statuses.items() if status != "completed"} <= {"[cut-team/0]"}
    assert {turn["http"] for turn in second.done["turns"].values() if "http" in turn} == {200}


def test_sessions_hold_what_the_old_code_would_have_stored(second: Second):
    """The transcripts afterwards are equal."""
    done, after = (dict(said) for said in (second.done["said"], second.after["said"]))
    for name in filter(kept_elsewhere, after):
        done[name], after[name] = without_identity(done[name]), without_identity(after[name])
    assert done == after


def test_a_client_of_a_cut_off_turn_is_told_what_is_void(second: Second):
    """The events of the first attempt stay, `turn.restarted` voids its text, and the rest is the stored answer."""
    turn_id = second.before["under_way"][mark("cut", 0)]
    events = [Event(*one) for one in second.site.events("Worker", "cut", turn_id)]
    reader = Reader()
    for event in events:
        reader.take(event)
    assert reader.text == second.done["turns"]["[cut/0]"]["response"]
    (restarted,) = [event for event in events if event.name == "turn.restarted"]
    void = [one for one in events if restarted.data["discard_from"] <= one.id < restarted.id]
    assert "This answer is cut off." in "".join(one.data["text"] for one in void if one.name == "message.delta")
    resumed = second.site.events("Worker", "cut", turn_id, after=void[2].id)
    assert [Event(*one) for one in resumed] == [one for one in events if one.id > void[2].id]


def test_keys_are_known(second: Second):
    """A request that the old code has answered is no second turn."""
    count = len(second.site.received())
    for name, turn_ids in second.before["turns"].items():
        agent, session = name.split("/")
        for number, turn_id in enumerate(turn_ids):
            answer = second.site.run(agent, session, mark(session, number))
            assert answer.headers["x-ms-turn-id"] == turn_id
    assert len(second.site.received()) == count


@pytest.mark.parametrize("second", ["embedded"], indirect=True)
def test_forks_of_old_turns(second: Second):
    """A session that the old code stored is forked in its middle, as the old code did."""
    for (agent, session), (origin, number) in second.play.forks.items():
        if number is None:
            continue
        turn_id = second.before["turns"][f"{agent}/{origin}"][number - 1]
        fork(second.site, agent, origin, f"{session}-again", at_turn=turn_id)
        forked = second.site.get(second.site.path(agent, f"{session}-again"))
        assert forked["messages"] == second.before["sessions"][f"{agent}/{session}"]["messages"]


@pytest.mark.parametrize("second", ["embedded"], indirect=True)
def test_exports_of_the_old_code_are_taken_and_go_on(second: Second):
    """An imported session asks the model what the session that was exported asks."""
    site, elsewhere = second.site, {"Noted", "Folded"}
    for agent, session in [*second.play.settled, *second.play.forks, *second.play.others]:
        if agent in elsewhere:  # import refuses: the conversation is not in the document
            continue
        document = second.before["exports"][f"{agent}/{session}"]
        imported = requests.post(site.path(agent, f"{session}-taken", "/import"), json=document, timeout=60)
        assert imported.status_code == 201, imported.text
        count = len(site.received())
        assert site.run(agent, f"{session}-taken", mark(session, 9)).ok
        asked, expected = site.received()[count:], second.after["requests"][f"[{session}/9]"]
        assert first_answered(asked) == first_answered(expected), session


def first_answered(asked: list[dict[str, Any]]) -> Any:
    """Give the first request that the model did not refuse, without item ids that follow from the session's."""
    body = next(one["body"] for one in asked if one["status"] == 200)
    return json.loads(re.sub(r'"fc_[0-9a-f]{32}"', '"derived"', json.dumps(body)))
