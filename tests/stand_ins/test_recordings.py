"""Recorded traffic: it follows the grammar, is replayed unmodified, and passes or breaks the rules as it did live."""

import json

import pytest

from practice_model.dialects.responses.transcript import Transcript
from practice_model.rules import requests
from practice_model.rules.requests import Rules
from practice_model.store import Store
from tests.practice_model.kit import parse_events
from tests.practice_model.stream_check import find_stream_violations
from tests.stand_ins.recordings import load_recordings
from tests.stand_ins.server import RESPONSES_TRAFFIC

pytestmark = pytest.mark.recordings

INCOMPLETE_STREAMS = {
    "id-rotation-proxy": "a proxy that changes item ids",
    "phase-two-messages": "shortened by its source",
    "multiturn/background-resume-starting-after/02": "resumed after the first event",
    "xai-web-search": "a search of xAI, which streams no events of its own",
    "mcp-list-tools-done-missing": "of three lists of tools, only the last is finished before the end",
}


@pytest.fixture(scope="session")
def recordings(recordings_dir):
    return load_recordings(recordings_dir, RESPONSES_TRAFFIC)


def load_events(recordings_dir, name):
    path = recordings_dir / "openai-responses" / f"{name}.jsonl"
    return [json.loads(line)["data"] for line in path.read_text().splitlines()]


def test_recorded_streams_follow_the_grammar(recordings):
    """All except those that are not complete streams of the API."""
    streams = {
        name: events for name, recording in recordings.by_name.items() if (events := recording.stream_version.events)
    }
    assert len(streams) > 60
    assert {name for name, events in streams.items() if find_stream_violations(events)} == set(INCOMPLETE_STREAMS)


def test_recorded_requests_pass_or_break_the_rules_as_they_did_live(recordings, recordings_dir):
    """In order, requests with status 200 are accepted, and the one rejection has the recorded error."""
    checked_count, rejected_folders = 0, []
    for folder in sorted((recordings_dir / "openai-responses" / "multiturn").iterdir()):
        store = Store()
        store.accept_encrypted(recordings.encrypted_values)
        for turn in json.loads((folder / "turns.json").read_text())["turns"]:
            recording = recordings.by_name.get(f"multiturn/{folder.name}/{turn['n']:02d}")
            body = json.loads((folder / turn["request"]).read_text()) if turn["request"] else None
            if body and "model" in body:
                checked_count += 1
                if body.get("conversation"):
                    store.conversations.setdefault(requests.get_conversation_id(body), Transcript())
                violation = requests.check_request(body, store, Rules(), now=0)
                assert (violation.status if violation else 200) == turn["status"], (folder.name, turn, violation)
                if violation:
                    rejected_folders.append(folder.name)
                    assert violation.body == json.loads((folder / turn["response"]).read_text())
            if recording:
                version = recording.stream_version
                store.record_response(
                    version.response | {"output": version.output},
                    is_stored=version.response.get("store") is not False,
                    transcript=recording.transcript or [],
                    events=[],
                    now=0,
                )
    assert checked_count > 50
    assert rejected_folders == ["reasoning-modified-history-400"]


@pytest.mark.parametrize("name", ["ci-three-calls-logs-citation", "multiturn/fn-parallel-gpt5/01"])
def test_a_planned_recording_is_replayed_unmodified(player, recordings_dir, name):
    """Event by event; without streaming, its body is sent."""
    file = f"{name}.events" if "multiturn" in name else name
    player.plan({"recording": name}, {"recording": name})
    assert parse_events(player.ask("Anything", stream=True)) == load_events(recordings_dir, file)
    body = player.ask("Anything").json()
    assert (body["object"], body["status"]) == ("response", "completed")


def test_a_recorded_user_text_replays_its_conversation(player, recordings_dir):
    """The second turn follows when the outputs of the recorded calls arrive."""
    folder = recordings_dir / "openai-responses" / "multiturn" / "fn-parallel-gpt5"
    for turn in ("01", "02"):
        body = json.loads((folder / f"{turn}.request.json").read_text())
        events = parse_events(player.http.post("/v1/responses", json=body))
        assert events == load_events(recordings_dir, f"multiturn/fn-parallel-gpt5/{turn}.events")


def test_replayed_recordings_are_checked_like_other_responses(player):
    """Their encrypted content is accepted, modified content is rejected."""
    player.plan({"recording": "multiturn/fn-phase-encrypted/01"})
    tools = [{"type": "function", "name": "get_capital", "parameters": {}}]
    output = player.ask("Where to?", tools=tools, include=["reasoning.encrypted_content"]).json()["output"]
    result = {"type": "function_call_output", "call_id": output[2]["call_id"], "output": "Potato City"}
    question = {"role": "user", "content": "Where to?"}
    response = player.ask([question, *output, result])
    assert response.status_code == 200, response.text
    damaged_item = output[0] | {"encrypted_content": output[0]["encrypted_content"][:-10]}
    assert (
        player.ask([question, damaged_item, *output[1:], result]).json()["error"]["code"] == "invalid_encrypted_content"
    )


def test_an_unknown_recording_is_named(player):
    """The error message names it."""
    player.plan({"recording": "nothing-like-it"})
    assert "'nothing-like-it'" in player.ask().json()["error"]["message"]


def test_a_recorded_stream_in_the_background_goes_on_after_an_event(player, recordings_dir):
    """A response is streamed again from a number on, as recorded; only those in the background are cancelled."""
    folder = "multiturn/background-resume-starting-after"
    player.plan({"recording": f"{folder}/01"}, {"recording": "background-queued"}, {"text": "Hi."})
    first, *_ = parse_events(player.ask("Anything", stream=True, background=True))
    path = f"/v1/responses/{first['response']['id']}"
    resumed = player.http.get(path, params={"stream": "true", "starting_after": 0})
    assert parse_events(resumed) == load_events(recordings_dir, f"{folder}/02.events")
    assert player.http.post(f"{path}/cancel").json()["status"] == "cancelled"
    queued = parse_events(player.ask("Anything", stream=True, background=True))
    assert [event["type"] for event in queued][:3] == ["response.created", "response.queued", "response.in_progress"]
    response = player.ask("Anything").json()
    assert player.http.post(f"/v1/responses/{response['id']}/cancel").status_code == 400
