"""Streamed updates to the stored response: how a stream was cut changes nothing."""

import json
import os
from itertools import pairwise

import pytest
from agent_framework import Agent, AgentResponseUpdate, Content
from agent_framework_openai import OpenAIChatClient
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.codec.message import encode_response_entry
from durable_agent_host.providers.openai import complete_call
from durable_agent_host.turns.fold import fold_updates
from tests.kit import RECORDINGS, PracticeModel, start_model

SCRIPT = "import math\nprint(math.pi)\n# größer 😀\n"
ANSWER = "It is 3.14159, größer 😀."
HOSTED = {
    "ci_1": (
        Content(
            "code_interpreter_tool_call",
            call_id="ci_1",
            inputs=[Content.from_text(SCRIPT)],
            additional_properties={"container_id": "cntr_1"},
        ),
        Content("code_interpreter_tool_result", call_id="ci_1", outputs=[Content.from_text("3.14159\n")]),
    )
}


def pieces(text, cuts):
    """Cut a text at some places."""
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[start:end] for start, end in pairwise(places)]


def stream(code_cuts, text_cuts):
    """Give the updates of a code run and a text, as the framework's parser gives them: the result goes first."""
    result = Content.from_code_interpreter_tool_result(call_id="ci_1", outputs=[])
    calls = [
        Content.from_code_interpreter_tool_call(call_id="ci_1", inputs=[Content.from_text(piece)])
        for piece in pieces(SCRIPT, code_cuts)
    ]
    texts = [Content.from_text(piece) for piece in pieces(ANSWER, text_cuts)]
    contents = [result, *calls, *texts]
    return [AgentResponseUpdate(contents=[content], role="assistant", message_id="m") for content in contents]


def complete(messages, updates):
    """Put the provider's own account of the code run in the place of what the stream says."""
    for message in messages:
        rest = [content for content in message.contents if content.call_id not in HOSTED]
        message.contents = [*HOSTED["ci_1"], *rest]
    return messages


def as_they_are(messages, updates):
    """Know no more than the framework."""
    return messages


def stored(response):
    """Give a response as it is stored."""
    return json.dumps(encode_response_entry("turn", response, created_at="now"))


@given(st.lists(st.integers(0, 99), max_size=60), st.lists(st.integers(0, 99), max_size=60))
def test_cutting_the_stream_elsewhere_changes_nothing(code_cuts, text_cuts):
    """Any cut of script and text is stored as the uncut stream is."""
    folded = fold_updates(stream(code_cuts, text_cuts), complete)
    assert stored(folded) == stored(fold_updates(stream([], []), complete))
    call, result, text = folded.messages[0].contents
    assert [part.text for part in call.inputs] == [SCRIPT]
    assert [part.text for part in result.outputs] == ["3.14159\n"]
    assert text.text == ANSWER


@given(st.lists(st.integers(0, 99), max_size=60))
def test_without_the_providers_item_the_script_is_whole_too(cuts):
    """A stream of a provider without items of its own still becomes one call with the whole script."""
    calls = [content for content in fold_updates(stream(cuts, []), as_they_are).messages[0].contents if content.inputs]
    assert ["".join(part.text for part in call.inputs) for call in calls] == [SCRIPT]


def test_no_updates_are_an_empty_response():
    """An agent that says nothing has a response without messages."""
    assert fold_updates([], complete).messages == []


def test_live_objects_are_let_go():
    """The folded response holds no live provider object."""
    assert fold_updates(stream([3], [4]), complete).raw_representation is None


# --- recorded streams, parsed by the real client -----------------------------------------------------------------


@pytest.fixture(scope="module")
def player():
    """A practice model that plays recordings."""
    if not RECORDINGS.is_dir():
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no recordings: set RECORDINGS_DIR")
    running = start_model(recordings=RECORDINGS)
    yield running
    running.stop()


async def updates_of(player: PracticeModel, name: str) -> list[AgentResponseUpdate]:
    """Let the real client parse a recorded stream."""
    import httpx2

    player.forget()
    player.plan({"recording": name})
    async with httpx2.AsyncClient() as http:
        import openai

        sdk = openai.AsyncOpenAI(api_key="practice", base_url=player.url, http_client=http, max_retries=0)
        client = OpenAIChatClient(model="practice", async_client=sdk)
        client.function_invocation_configuration["enabled"] = False
        agent = Agent(client, name="Player", default_options={"store": False})
        return [update async for update in agent.run("play it", stream=True)]


def recorded_items(name):
    """Read the final items of a recorded stream."""
    lines = (RECORDINGS / "openai-responses" / f"{name}.jsonl").read_text().splitlines()
    events = [json.loads(line)["data"] for line in lines]
    return [event["item"] for event in events if event.get("type") == "response.output_item.done"]


def output_text(output):
    return output.get("logs") if output["type"] == "logs" else output["url"]


@pytest.mark.recordings
@pytest.mark.parametrize(
    "name",
    [
        "ci-three-calls-logs-citation",
        "ci-azure-logs",
        "ci-factorial",
        "ci-files-two-calls-citation",
        "ci-image-output-encrypted-reasoning",
        "ci-math-tutor",
    ],
)
async def test_recorded_code_runs_are_stored_whole(player, name):
    """Of a recorded stream the stored response has every code run once, complete, in the recorded order."""
    updates = await updates_of(player, name)
    response = fold_updates(updates, complete_call)
    contents = [content for message in response.messages for content in message.contents]
    runs = [item for item in recorded_items(name) if item["type"] == "code_interpreter_call"]
    calls = [content for content in contents if content.type == "code_interpreter_tool_call"]
    results = [content for content in contents if content.type == "code_interpreter_tool_result"]
    assert runs
    assert [call.call_id for call in calls] == [result.call_id for result in results] == [run["id"] for run in runs]
    assert [[part.text for part in call.inputs] for call in calls] == [[run["code"]] for run in runs]
    assert [call.additional_properties["container_id"] for call in calls] == [run["container_id"] for run in runs]
    assert [[output.uri or output.text for output in result.outputs] for result in results] == [
        [output_text(output) for output in run["outputs"] or []] for run in runs
    ]
    for call, result in zip(calls, results, strict=True):
        assert contents.index(result) == contents.index(call) + 1
    texts = [part["text"] for item in recorded_items(name) if item["type"] == "message" for part in item["content"]]
    assert "".join(content.text for content in contents if content.type == "text") == "".join(texts)
    cited = [
        (note["file_id"], note["start_index"], note["end_index"])
        for item in recorded_items(name)
        if item["type"] == "message"
        for part in item["content"]
        for note in part["annotations"]
        if note["type"] == "container_file_citation"
    ]
    kept = [
        (note["file_id"], region["start_index"], region["end_index"])
        for content in contents
        for note in content.annotations or []
        for region in note["annotated_regions"]
    ]
    assert kept == cited


@pytest.mark.recordings
@pytest.mark.parametrize("name", ["fn-single", "fn-single-gpt41", "fn-azure"])
async def test_recorded_arguments_are_kept_byte_for_byte(player, name):
    """The stored arguments, call ids and item ids of a recorded call are the recorded ones."""
    updates = await updates_of(player, name)
    response = fold_updates(updates, complete_call)
    calls = [c for message in response.messages for c in message.contents if c.type == "function_call"]
    recorded = [item for item in recorded_items(name) if item["type"] == "function_call"]
    assert recorded
    assert [(call.call_id, call.name, call.arguments, call.additional_properties["fc_id"]) for call in calls] == [
        (item["call_id"], item["name"], item["arguments"], item["id"]) for item in recorded
    ]


@pytest.mark.recordings
async def test_recorded_encrypted_reasoning_is_kept(player):
    """Every recorded reasoning item is stored with its id and its encrypted payload."""
    name = "ci-image-output-encrypted-reasoning"
    updates = await updates_of(player, name)
    entry = stored(fold_updates(updates, complete_call))
    reasoning = [item for item in recorded_items(name) if item["type"] == "reasoning"]
    assert reasoning
    for item in reasoning:
        assert item["id"] in entry
        assert entry.count(item["encrypted_content"]) == 1
