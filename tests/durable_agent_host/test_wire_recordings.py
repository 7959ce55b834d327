"""Recorded conversations that the live API accepted: ours sends the same items on the same turn."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from agent_framework import FunctionTool

from durable_agent_host.turn_log.sqlite_log import SqliteTurnLog
from practice_model.rules.requests import Rules
from tests.durable_agent_host.finished_blocks import plain_item
from tests.durable_agent_host.wire_lab import Lab
from tests.kit import RECORDINGS

pytestmark = pytest.mark.recordings

FOLDER = RECORDINGS / "openai-responses" / "multiturn"

NO_FIT = {
    "apply-patch-create": "one turn, which waits for the client: see below",
    "apply-patch-update": "one turn, which waits for the client: see below",
    "background-cancel": "one turn, cancelled",
    "background-resume-starting-after": "one turn",
    "ci-container-from-api": "one turn",
    "ci-uploaded-file": "one turn",
    "four-turns-encrypted-stream": "requests were not recorded",
    "image-generation-jpeg": "one turn",
    "mcp-approval": "the approval is an answer that the host has no route for yet",
    "programmatic-tool-calls": "requests were not recorded",
    "reasoning-store-disabled": "two separate turns",
    "store-false-then-404": "one turn",
}
"""Recording → why it has no second turn that the host can take."""

CHANGED_BY_ITS_CLIENT = {
    "reasoning-modified-history-400": "turn 2 is the rejection, and turn 3 has a history that the caller made up",
}

NOT_COMPARED = {
    "ci-replay-store-default": {"outputs": "the recorded client sent null; the outputs themselves are accepted, too"},
    "fn-phase-encrypted": {"content": "the recording has other quotation marks in the request than in the answer"},
    "fn-plain-gpt4o": {"call_id": "the recorded client sent the item's id as the call id"},
    "fn-tool-variations": {
        "call_id": "the recorded client sent the item's id as the call id",
        "phase": "the recorded client left it out",
    },
    "fn-roundtrip-encrypted-llm": {"arguments": "the recorded client wrote the arguments anew"},
    "mcp-replay": {
        "tools": "the recorded client sent an empty list; the provider gave the list out",
        "output": "the recorded client left it out",
    },
    "web-search-replay-store-false": {"id": "the recorded client made up the message's id"},
}
"""Recording → field → what its client changed; ours is what the provider gave out."""


@dataclass
class Step:
    """One recorded call of the model: its request, and the name of its answer."""

    body: dict
    answer: str

    @property
    def items(self):
        """The input in one form, without instructions."""
        return [plain_item(item) for item in self.body["input"] if item.get("role") not in {"system", "developer"}]


def conversations(name):
    """Split a recording into conversations: a request that does not go on from the one before begins another."""
    conversation_steps: list[list[Step]] = []
    for turn in json.loads((FOLDER / name / "turns.json").read_text())["turns"]:
        files = [value for value in turn.values() if isinstance(value, str)]
        request_file = next((file for file in files if file.endswith(".request.json")), None)
        if request_file is None or not turn["path"].endswith("/responses"):
            continue
        step = Step(
            json.loads((FOLDER / name / request_file).read_text()), f"multiturn/{name}/{request_file.split('.')[0]}"
        )
        is_continuation = step.body.get("previous_response_id") or step.body.get("conversation") or _replays(step)
        if is_continuation and conversation_steps:
            conversation_steps[-1].append(step)
        else:
            conversation_steps.append([step])
    return [steps for steps in conversation_steps if len(steps) > 1]


def _replays(step):
    return any(item["type"] != "message" or item["role"] == "assistant" for item in step.items)


def tools_of(steps):
    """Make the recorded function tools; each call returns what was recorded for it."""
    items = [item for step in steps for item in step.items]
    bodies = [json.loads(path.read_text()) for path in FOLDER.parent.glob("multiturn/*/*.response.json")]
    calls = {item["call_id"]: item for item in items if item["type"] == "function_call"}
    calls |= {
        item["call_id"]: item for body in bodies for item in body.get("output") or [] if item["type"] == "function_call"
    }
    outputs = {
        (
            calls[item["call_id"]]["name"],
            json.dumps(json.loads(calls[item["call_id"]]["arguments"]), sort_keys=True),
        ): item
        for item in items
        if item["type"] == "function_call_output"
    }

    def tool(declaration):
        def run(**arguments):
            return outputs[declaration["name"], json.dumps(arguments, sort_keys=True)]["output"]

        return FunctionTool(
            name=declaration["name"],
            description="",
            func=run,
            input_model=declaration.get("parameters") or {"type": "object"},
        )

    declarations = {
        declaration["name"]: declaration
        for step in steps
        for declaration in step.body.get("tools") or []
        if declaration["type"] == "function"
    }
    return [tool(declaration) for declaration in declarations.values()]


@pytest.fixture(scope="module")
def recordings():
    if not FOLDER.is_dir():
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no recordings: set RECORDINGS_DIR")
    return RECORDINGS


def names():
    if not FOLDER.is_dir():
        return ["none"]
    return sorted(path.name for path in FOLDER.iterdir() if path.name not in NO_FIT | CHANGED_BY_ITS_CLIENT)


@pytest.mark.drawn(8)
@pytest.mark.parametrize("name", names())
async def test_the_request_has_the_recorded_items(name, recordings):
    """Run a recorded conversation with a fresh process for each turn: every request has the accepted items."""
    recorded_conversations = conversations(name)
    assert recorded_conversations, f"say in NO_FIT why {name} has no second turn"
    for steps in recorded_conversations:
        continues = any(step.body.get("previous_response_id") or step.body.get("conversation") for step in steps)
        lab = Lab(
            model="gpt-recorded",
            tools=tools_of(steps),
            options={} if continues else {"store": False},
            rules=Rules(),
            recordings=recordings,
        )
        lab.plan(*({"recording": step.answer} for step in steps))
        for text in new_texts(steps):
            outcome = await lab.cold_turn(text)
            assert outcome.error is None
        assert lab.bodies == lab.bodies_of_the_sdk
        assert len(lab.inputs) == len(steps)
        for step, sent in zip(steps, lab.inputs, strict=True):
            compare(step.items, [plain_item(item) for item in sent], NOT_COMPARED.get(name, {}))


def new_texts(steps):
    """Give the user's messages, each once."""
    texts: list[str] = []
    for step in steps:
        user_texts = [item["content"][0]["text"] for item in step.items if item.get("role") == "user"]
        continues = step.body.get("previous_response_id") or step.body.get("conversation")
        texts += user_texts if continues else user_texts[len(texts) :]
    return texts


def compare(accepted_items, sent, not_compared):
    """Hold what we send against the recorded items, in order."""
    if not any(item["type"] == "reasoning" for item in accepted_items):
        # The recorded client left the reasoning out; with its payload and its follower it is accepted, too.
        sent = [item for item in sent if item["type"] != "reasoning"]
    assert [item["type"] for item in sent] == [item["type"] for item in accepted_items]
    for sent_item, accepted_item in zip(sent, accepted_items, strict=True):
        optional = ({"id", "status"} - accepted_item.keys()) | not_compared.keys()
        assert {name: value for name, value in sent_item.items() if name not in optional} == {
            name: value for name, value in accepted_item.items() if name not in not_compared
        }


def test_every_recording_is_compared_or_excluded():
    """A recording that was added is compared, or listed with the reason why it cannot be."""
    if FOLDER.is_dir():
        recording_names = {*NO_FIT, *CHANGED_BY_ITS_CLIENT, *NOT_COMPARED}
        assert recording_names <= {path.name for path in Path(FOLDER).iterdir()}


OWN_TOOLS = {"function_call", "custom_tool_call", "local_shell_call", "apply_patch_call", "mcp_approval_request"}
"""Calls that wait for an answer of the app."""


CLIENT_CALLS = ["custom-tool-grammar", "apply-patch", "local-shell"]
"""Recorded calls of the service's own tools that the client runs."""


@pytest.fixture
async def log(tmp_path):
    """The log of a turn that ends in another process than it began."""
    turn_log = SqliteTurnLog(tmp_path / "log.db")
    yield turn_log
    await turn_log.close()


@pytest.mark.parametrize("name", CLIENT_CALLS)
async def test_a_call_that_the_client_runs_is_replayed_with_its_output(name, recordings, log):
    """The recorded call goes back as it was, with the client's output, in its own turn and in the next."""
    lab = Lab(model="gpt-recorded", options={"store": False}, rules=Rules(), recordings=recordings)
    lab.plan({"recording": name}, {"text": "Yes."}, {"text": "And on."})
    assert (await lab.waiting_turn("first", lambda: log, "as it should be")).error is None
    assert (await lab.cold_turn("second")).error is None
    (call,) = [item for item in lab.service.request_log.entries[0]["output"] if item["type"] in OWN_TOOLS]
    for sent in lab.inputs[1:]:
        (sent_call, output) = [item for item in sent if item["type"] not in {"message", "reasoning"}]
        assert plain_item(call) | sent_call == plain_item(call)
        assert (output["type"], output["call_id"]) == (f"{call['type']}_output", call["call_id"])
        assert output["output"] == "as it should be"


@pytest.mark.parametrize("name", ["apply-patch-create", "apply-patch-update"])
async def test_a_recorded_patch_is_answered_as_recorded(name, recordings, log):
    """The request with the output is the accepted one."""
    (steps,) = conversations(name)
    lab = Lab(model="gpt-recorded", tools=[{"type": "apply_patch"}], rules=Rules(), recordings=recordings)
    lab.plan(*({"recording": step.answer} for step in steps))
    assert (await lab.waiting_turn(new_texts(steps)[0], lambda: log)).error is None
    for step, sent in zip(steps, lab.inputs, strict=True):
        compare(step.items, [plain_item(item) for item in sent], {})


@pytest.mark.parametrize("name", CLIENT_CALLS)
async def test_an_open_call_is_not_replayed(name, recordings, log):
    """A call of a cancelled turn is stored, and omitted from the next request with its reasoning."""
    lab = Lab(model="gpt-recorded", options={"store": False}, rules=Rules(), recordings=recordings)
    lab.plan({"recording": name}, {"text": "Yes."})
    assert (await lab.waiting_turn("first", lambda: log, is_cancelled=True)).status == "cancelled"
    (call,) = [item for item in lab.service.request_log.entries[0]["output"] if item["type"] in OWN_TOOLS]
    assert call["call_id"] in json.dumps(lab.session.entries)
    assert (await lab.cold_turn("second")).error is None
    kinds = {item["type"] for item in lab.inputs[1]}
    assert not kinds & (OWN_TOOLS | {"reasoning"})


async def test_an_open_function_call_is_closed(recordings):
    """A recorded function call without a result goes back with one that says that it is not known."""
    lab = Lab(model="gpt-recorded", options={"store": False}, rules=Rules(), recordings=recordings)
    lab.plan({"recording": "tool-search-hosted"}, {"text": "Yes."})
    assert (await lab.cold_turn("first")).error is None
    assert (await lab.cold_turn("second")).error is None
    item_types = [item["type"] for item in lab.service.request_log.entries[0]["output"]]
    assert [item["type"] for item in lab.inputs[1][1:-1]] == [*item_types, "function_call_output"]
    assert lab.inputs[1][-2] | {"output": ""} == {
        "type": "function_call_output",
        "call_id": lab.inputs[1][-3]["call_id"],
        "output": "",
    }
