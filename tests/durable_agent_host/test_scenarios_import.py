"""What import takes can be used: any document is refused with the place that is wrong, or readable ever after."""

import json
import operator
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Any
from uuid import uuid4

import pytest
import requests

from tests.durable_agent_host.golden import golden
from tests.durable_agent_host.mutations import mutations
from tests.durable_agent_host.test_scenarios_sessions import command
from tests.kit import AgentHost, PracticeModel, exported
from tests.sweeps import SEED, count

GOLDEN = ("session-v1", "session-v1-openai", "session-v1-unknown-parts", "session-dotnet-1.1")
GOLDEN += ("session-upstream-1.0", "session-upstream-1.1", "session-upstream-1.2")
EACH = count("MUTATIONS", short=6, long=500)
"""Of each document."""
AT_ONCE = 8
PATH_PATTERN = re.compile(r"(data|extensionData|schemaVersion|schema version|line 1)\b|the document")


def live_sessions(lab: AgentHost, model: PracticeModel) -> dict[str, tuple[str, dict]]:
    """Sessions as this host writes them: tools, reasoning, code, a service's session, a failed turn."""
    model.plan({"reasoning": "Let me see.", "code": "print(1)", "logs": "1", "text": "One."}, user_text="mutate-think")
    messages_by_name = {
        "live tool": ("Ledger", ['charge with {"amount": 4}', "and then?"]),
        "live thought": ("Thinker", ["mutate-think", "and then?"]),
        "live service": ("Kept", ["hello"]),
        "live failure": ("Raising", ["work", "magic"]),
    }
    sessions = {}
    for name, (agent, messages) in messages_by_name.items():
        session = f"mutate-{uuid4().hex[:8]}"
        for message in messages:
            lab.run(agent, {"message": message, "session_id": session})
        sessions[name] = (agent, exported(lab.get(f"/agents/{agent}/sessions/{session}/export").text))
    return sessions


def exercise_import(lab: AgentHost, agent: str, document: object) -> tuple[str, str]:
    """Import a document and use the session in all ways; gives how it went, and what was wrong if something was."""
    name = f"mutated-{uuid4().hex}"
    path = f"{lab.url}/api/agents/{agent}/sessions/{name}"
    import_response = requests.post(f"{path}/import", data=json.dumps(document))
    if import_response.status_code in (400, 422):
        detail = import_response.json()["detail"]
        return "refused", "" if PATH_PATTERN.search(detail) else f"names no place: {detail}"
    if import_response.status_code != 201:
        return "odd", f"import {import_response.status_code}: {import_response.text}"
    for action in ("", "/verify", "/export"):
        response = requests.get(path + action)
        if response.status_code != 200:
            return "odd", f"GET {action} {response.status_code}: {response.text}"
    fork_response = requests.post(f"{path}/fork", data=b"")
    if fork_response.status_code != 201:
        return "odd", f"fork {fork_response.status_code}: {fork_response.text}"
    turn = lab.run(agent, {"message": "work", "session_id": name})
    if turn.status_code == 409 and "$type" not in turn.text and "of type" in turn.text:
        return "taken, with an entry of a later program", ""
    if turn.status_code == 502:  # what only the service or its client can judge: its items, its session's id
        is_expected = "the model's service rejected" in turn.text or "service_session_id" in turn.text
        return "taken, rejected by the model's service", "" if is_expected else turn.text
    if turn.status_code != 200:
        return "odd", f"turn {turn.status_code}: {turn.text}"
    last_response = requests.get(path)
    return (
        "taken",
        ""
        if last_response.status_code == 200
        else f"GET after a turn {last_response.status_code}: {last_response.text}",
    )


@pytest.mark.sweep
@pytest.mark.timeout(max(600, EACH * 4))
def test_mutated_documents_are_rejected_with_a_path_or_usable(lab: AgentHost, model: PracticeModel):
    """Hundreds of mutated exports are either rejected, or can be read, listed, verified, forked and continued."""
    documents = live_sessions(lab, model) | {name: ("Instant", golden(name)) for name in GOLDEN}
    jobs = [
        (name, agent, change, mutant)
        for name, (agent, document) in documents.items()
        for change, mutant in mutations(document, EACH, seed=f"{SEED} {name}")
    ]
    assert len(jobs) >= 10 * EACH
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(lambda job: exercise_import(lab, job[1], job[3]), jobs))
    violations = [f"{job[0]}: {job[2]}: {reason}" for job, (_, reason) in zip(jobs, results, strict=True) if reason]
    counts = Counter(result for result, _ in results)
    assert violations == [], "\n".join(violations)
    assert min(counts["refused"], counts["taken"]) > 5 * EACH / 3, counts
    list_response = lab.get("/agents/Instant/sessions?limit=1000")
    assert list_response.status_code == 200


SECOND, HOST = "data.conversationHistory[1]", "data.extensionData.durableAgentHost"
MALFORMED = {
    "turn id": ("data.conversationHistory[0].correlationId", [1]),
    "extension": (f"{SECOND}.extensionData", "x"),
    "type": (f"{SECOND}.messages[0].contents[0].$type", ["text"]),
    "call id": (f"{SECOND}.messages[0].contents[0].callId", [1]),
    "properties": (
        f"{SECOND}.messages[2].contents[0].extensionData.durableAgentHost.additional_properties",
        "x",
    ),
    "session": (f"{HOST}.agentSession", ["s1"]),
    "session's state": (f"{HOST}.agentSession", {"session_id": "s1", "state": {"$content": {}}}),
    "receipt": (f"{HOST}.receipts[0].stats", "heavy"),
    "status": (f"{HOST}.receipts[0].status", "well"),
    "error": (f"{HOST}.receipts[0].error", {"message": "No."}),
    "role": (f"{SECOND}.messages[1].role", {"a": 1}),
}
"""The place of a part, and what is there instead."""


def malformed_session(part: str) -> dict:
    """A stored session with a part of another shape."""
    document: Any = golden("session-v1-openai")
    place, value = MALFORMED[part]
    *way, last = [int(step) if step.isdigit() else step for step in re.findall(r"[\w$]+", place)]
    reduce(operator.getitem, way, document)[last] = value
    return document


@pytest.mark.parametrize("part", MALFORMED)
def test_a_malformed_document_is_rejected_with_its_path(lab: AgentHost, part):
    """A document of which a part cannot be read is a 400 that names the part, and nothing is stored."""
    name = f"odd-{uuid4().hex}"
    response = lab.post(f"/agents/Instant/sessions/{name}/import", json.dumps(malformed_session(part)).encode())
    assert response.status_code == 400, response.text
    assert MALFORMED[part][0] in response.json()["detail"]
    assert lab.state("Instant", name) is None


@pytest.mark.parametrize("part", MALFORMED)
def test_a_malformed_stored_session_is_readable_reported_and_repaired(lab: AgentHost, capsys, part):
    """A stored part that cannot be read is no 500: GET shows the rest, verify names it, and repair mends it."""
    name = f"odd-{uuid4().hex}"
    lab.put_state("Instant", name, malformed_session(part))
    session_response = lab.get(f"/agents/Instant/sessions/{name}")
    assert session_response.status_code == 200, session_response.text
    assert "hello world" in json.dumps(session_response.json()["messages"])
    assert MALFORMED[part][0] in [problem["place"] for problem in session_response.json()["problems"]]
    assert MALFORMED[part][0] in command(lab, capsys, "show", name, agent="Instant")[1]
    status, out, _ = command(lab, capsys, "verify", name, agent="Instant")
    assert status == 1
    assert MALFORMED[part][0] in out
    assert lab.run("Instant", {"message": "hi", "session_id": name}).status_code in (200, 409)
    assert command(lab, capsys, "repair", name, agent="Instant")[0] == 0
    assert command(lab, capsys, "verify", name, agent="Instant")[0] == 0
    assert lab.run("Instant", {"message": "hi", "session_id": name}).status_code == 200
    assert "problems" not in lab.get(f"/agents/Instant/sessions/{name}").json()


@pytest.mark.parametrize(
    "body",
    [
        b'{"schemaVersion": "1.1.0", "data": {"conversationHistory": [], "x": NaN}}',
        b'{"schemaVersion": "1.1.0", "data": {"conversationHistory": [], "x": %b}}' % (b"1" * 100_000),
        b"",
    ],
    ids=("nan", "digits", "depth"),
)
def test_invalid_json_numbers_are_rejected(lab: AgentHost, body):
    """What Python reads and JSON does not have, too many digits, and depth that nothing can copy, are a 400."""
    body = body or json.dumps(golden("session-v1") | {"deep": 1}).encode().replace(
        b": 1}", b": " + b"[" * 900 + b"]" * 900 + b"}"
    )
    response = lab.post(f"/agents/Instant/sessions/no-{uuid4().hex}/import", body)
    assert response.status_code == 400, response.text
    assert "line 1" in response.json()["detail"]


@pytest.mark.parametrize("document", [{"data": {"conversationHistory": []}}, True, 5])
def test_a_body_that_is_no_export_is_rejected(lab: AgentHost, document: Any):
    """The answer names the line."""
    body = json.dumps(document).encode()
    response = lab.post(f"/agents/Instant/sessions/no-{uuid4().hex}/import", body)
    assert (response.status_code, "line 1" in response.json()["detail"]) == (400, True), response.text
