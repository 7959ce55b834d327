"""A rehydrated turn with Gemini is a live turn: the service gets back each of its parts unchanged."""

import json
from itertools import pairwise

import pytest
from agent_framework import FunctionTool, tool
from google.genai import types

from tests.durable_agent_host.gemini_lab import GeminiLab, accepted_parts, plain
from tests.kit import RECORDINGS

pytestmark = pytest.mark.filterwarnings("ignore:.* is not a valid:UserWarning")  # of Google's SDK, for new names

FOLDER = RECORDINGS / "gemini" / "multiturn"
SIGNED = "c2lnbmVk"


@tool(name="look_up")
def find_word(word: str) -> str:
    """Look a word up."""
    return f"found {word}, größer 😀"


def part(**fields):
    """An item that the practice model sends unchanged."""
    return {"item": {"type": "part", "part": fields}}


THINK = {"reasoning": "Let me see."}
LOOKUP = {"calls": [{"name": "look_up", "arguments": {"word": "é", "n": 1.0, "deep": {"a": [1, None]}}}]}
LOOKUPS = {"calls": [{"name": "look_up", "arguments": {"word": word}} for word in "abc"]}
SAY = {"text": "It is so, and this is told in several fragments."}
RUN = {"code": "print(1)\n# größer 😀", "logs": "1\n"}
SEARCH = [
    part(toolCall={"id": "t1", "toolType": "FILE_SEARCH", "args": {"q": "x"}}, thoughtSignature=SIGNED),
    part(toolResponse={"id": "t1", "toolType": "FILE_SEARCH", "response": {"a": [1]}}, thoughtSignature=SIGNED),
]
FAILED = [
    part(executableCode={"language": "PYTHON", "code": "1/0"}),
    part(codeExecutionResult={"outcome": "OUTCOME_FAILED", "output": "ZeroDivisionError"}),
]
UNKNOWN = [
    part(hologram={"depth": 3}, thoughtSignature=SIGNED),
    part(text="known ", tone="calm"),
    part(executableCode={"language": "RUST", "code": "fn", "seed": 7}, partMetadata={"a": 1}),
    part(codeExecutionResult={"outcome": "OUTCOME_ODD", "weight": 1}),
    part(inlineData={"mimeType": "image/png", "data": "YWJj"}, thoughtSignature=SIGNED),
    part(fileData={"fileUri": "gs://a/b.pdf", "mimeType": "application/pdf"}),
]
SIGNED_TEXTS = [
    part(text="One ", thoughtSignature=SIGNED),
    part(text="two "),
    part(text="", thoughtSignature=SIGNED),
    part(text="", thoughtSignature=SIGNED + "Cg=="),
    part(text="three", thoughtSignature=SIGNED),
    part(text="a thought", thought=True, thoughtSignature=SIGNED),
]

SCENARIOS = {
    "text": [[[SAY]], [[SAY]], [[SAY]]],
    "thoughts": [[[THINK, SAY]], [[THINK, SAY]], [[THINK, SAY]]],
    "a tool": [[[THINK, LOOKUP], [SAY]], [[SAY]], [[SAY]]],
    "sequential tools": [[[THINK, LOOKUP], [THINK, LOOKUP], [THINK, SAY]], [[LOOKUP], [SAY]], [[SAY]]],
    "parallel tools": [[[THINK, LOOKUPS], [THINK, SAY]], [[SAY]]],
    "text before calls": [[[SAY, LOOKUP], [SAY]], [[SAY]]],
    "code": [[[THINK, RUN, SAY]], [[SAY]], [[SAY]]],
    "code with images and tools": [
        [[RUN | {"image": True}, SAY, LOOKUP], [RUN, RUN, SAY]],
        [[RUN, LOOKUP], [SAY]],
        [[SAY]],
    ],
    "code that fails": [[[*FAILED, SAY]], [[SAY]]],
    "hosted tools": [[[*SEARCH, SAY]], [[*SEARCH, LOOKUP], [SAY]], [[SAY]]],
    "what nobody knows": [[UNKNOWN], [[*UNKNOWN, LOOKUP], [SAY]], [[SAY]]],
    "signatures on texts": [[SIGNED_TEXTS], [[SAY]]],
}
MODELS = "gemini-3-practice", "gemini-2.5-practice"


def lab_of(model):
    """An agent that has a tool, runs code and tells its thoughts."""
    code_tool = types.Tool(code_execution=types.ToolCodeExecution())
    return GeminiLab(model, tools=[find_word, code_tool], options={"thinking_config": {"include_thoughts": True}})


@pytest.fixture(params=MODELS)
def lab(request):
    """The agent with either kind of model: one that signs its parts and names its calls, and one that does not."""
    return lab_of(request.param)


def without_generated_ids(contents):
    """Leave the ids out that the client has made up for calls without one."""
    return json.loads(
        json.dumps(contents),
        object_hook=lambda fields: {
            n: v for n, v in fields.items() if n != "id" or not str(v).startswith("tool-call-")
        },
    )


@pytest.mark.drawn(8)
@pytest.mark.parametrize("name", SCENARIOS)
async def test_each_request_has_the_parts_of_earlier_responses(lab: GeminiLab, name: str):
    """A cold process sends its earlier request, then the parts of the response verbatim."""
    for index, steps in enumerate(SCENARIOS[name]):
        lab.plan(*({"items": step, "chunk_characters": 7} for step in steps), user_text=f"turn {index}")
        outcome = await lab.cold_turn(f"turn {index}")
        assert outcome.status == "completed", outcome.error
    calls = lab.calls
    assert len(calls) == len(lab.contents) == sum(map(len, SCENARIOS[name]))
    for before, after in pairwise(calls):
        sent, then = (without_generated_ids(plain(call["body"]["contents"])) for call in (before, after))
        assert then[: len(sent)] == sent
        expected_message = {"role": "model", "parts": accepted_parts(plain(before["output"]))}
        assert then[len(sent)] == expected_message


@pytest.mark.drawn(8)
@pytest.mark.parametrize("name", SCENARIOS)
async def test_warm_and_cold_turns_send_the_same(lab: GeminiLab, name: str):
    """A warm process and one that loads the session from its store send the same, except for generated ids."""
    texts = [f"turn {index}" for index in range(len(SCENARIOS[name]))]
    bodies = []
    for is_warm in (True, False):
        other = lab_of(lab.model)
        for text, steps in zip(texts, SCENARIOS[name], strict=True):
            other.plan(*({"items": step, "chunk_characters": 7} for step in steps), user_text=text)
        if is_warm:
            await other.warm_turns(texts)
        else:
            for text in texts:
                await other.cold_turn(text)
        bodies.append([without_generated_ids(plain(call["body"])) for call in other.calls])
    assert bodies[0] == bodies[1]


def recording_names():
    """The recorded conversations."""
    return sorted(path.name for path in FOLDER.glob("*")) if FOLDER.is_dir() else ["none"]


@pytest.mark.recordings
@pytest.mark.skipif(not FOLDER.is_dir(), reason="needs the recordings")
@pytest.mark.parametrize("name", recording_names())
async def test_a_recorded_conversation_is_sent_as_it_was_accepted(name: str):
    """Each request of a recorded conversation is the one that the live service has accepted."""
    turns = json.loads((FOLDER / name / "turns.json").read_text())["turns"]
    accepted_bodies = [plain(json.loads((FOLDER / name / turn["request"]).read_text())) for turn in turns]
    model = turns[0]["path"].partition("models/")[2].partition(":")[0]
    lab = GeminiLab(model, tools_of(accepted_bodies), recordings=RECORDINGS)
    lab.plan(*({"recording": f"multiturn/{name}/{turn['n']:02}"} for turn in turns))
    for index, body in enumerate(accepted_bodies):
        if "text" in body["contents"][-1]["parts"][0]:
            outcome = await lab.cold_turn(body["contents"][-1]["parts"][0]["text"])
            assert outcome.status == "completed", (index, outcome.error)
    assert len(lab.contents) == len(accepted_bodies)
    for contents, accepted_body in zip(lab.contents, accepted_bodies, strict=True):
        assert with_numbered_ids(contents) == with_numbered_ids(accepted_body["contents"])


def with_numbered_ids(contents):
    """Write contents in one form: ids that a client has made up are numbered, calls without arguments have none."""
    text = json.dumps(contents, sort_keys=True)
    call_ids = [
        part["functionCall"]["id"] for content in contents for part in content["parts"] if "functionCall" in part
    ]
    for index, name in enumerate(name for name in call_ids if name.startswith("tool-call-")):
        text = text.replace(f'"{name}"', f'"{index + 1}"')
    return json.loads(text)


def tools_of(bodies):
    """Make the recorded tools; each call returns what was recorded for its arguments."""
    parts = [part for body in bodies for content in body["contents"] for part in content["parts"]]
    tool_responses = [part["functionResponse"] for part in parts if "functionResponse" in part]
    responses_by_id = {response["id"]: response["response"] for response in tool_responses}
    calls = [part["functionCall"] for part in parts if "functionCall" in part]
    results = {(call["name"], json.dumps(call["args"], sort_keys=True)): responses_by_id[call["id"]] for call in calls}
    declarations = {}
    for tool_group in bodies[0].get("tools", []):
        for declaration in tool_group.get("functionDeclarations", []):
            declarations[declaration["name"]] = declaration

    def make_tool(name):
        def run(**arguments):
            return json.dumps(results[name, json.dumps(arguments, sort_keys=True)])

        return FunctionTool(name=name, description="", func=run, input_model={"type": "object", "properties": {}})

    return [make_tool(name) for name in declarations]
