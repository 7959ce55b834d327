"""A rehydrated turn is a live turn: the model gets the same request, item by item."""

from dataclasses import replace

import pytest
from agent_framework import Content, ContextProvider, tool

from practice_model.dialects.responses.items import PIXEL
from tests.durable_agent_host.wire_lab import Lab

OUTPUTS = {"include": ["code_interpreter_call.outputs"]}


@tool(name="look_up")
def find_word(word: str) -> str:
    """Look a word up."""
    return f"found {word}, größer 😀"


@tool
def draw() -> list[Content]:
    """Give a picture."""
    return [Content.from_text("here"), Content.from_uri(PIXEL, media_type="image/png")]


@tool
def fail(word: str = "") -> str:
    """Say nothing, or fail."""
    if word:
        raise ValueError(f"no {word}")
    return ""


def message_item(*parts):
    """A message of the model, part by part."""
    return {"item": {"type": "message", "role": "assistant", "status": "completed", "content": list(parts)}}


def part(text):
    return {"type": "output_text", "text": text, "annotations": []}


THINK = {"reasoning": "Let me see."}
LOOKUP = {"calls": [{"name": "look_up", "arguments": '{"word":  "a\\u00e9"}'}]}
SAY = {"text": "It is so."}
RUN = {"code": "print(1)\n# größer 😀", "logs": "1\n"}

SCENARIOS: dict[str, list[list[list[dict]]]] = {
    "text": [[[SAY]], [[SAY]], [[SAY]]],
    "reasoned text": [[[THINK, SAY]], [[THINK, SAY]], [[THINK, SAY]]],
    "a tool": [[[LOOKUP], [SAY]], [[SAY]], [[SAY]]],
    "sequential tools": [
        [[THINK, LOOKUP], [THINK, LOOKUP], [THINK, LOOKUP], [THINK, SAY]],
        [[THINK, LOOKUP], [THINK, SAY]],
        [[THINK, SAY]],
    ],
    "parallel tools": [
        [[THINK, {"calls": [{"name": "look_up", "arguments": {"word": word}} for word in "abc"]}], [THINK, SAY]],
        [[SAY]],
    ],
    "phases before calls": [
        [[THINK, {"text": "I look.", "phase": "commentary"}, LOOKUP], [{"text": "Done.", "phase": "final_answer"}]],
        [[{"text": "One.", "phase": "commentary"}, {"text": "Two.", "phase": "final_answer"}]],
        [[SAY]],
    ],
    "code": [[[THINK, RUN, THINK, {"text": "See:", "files": ["a.csv", "b.csv"]}]], [[SAY]], [[SAY]]],
    "code with images and tools": [
        [
            [THINK, RUN | {"image": True}, THINK, LOOKUP],
            [THINK, RUN, THINK, RUN, {"text": "See it", "phase": "final_answer"}],
        ],
        [[RUN, LOOKUP], [SAY]],
        [[SAY]],
    ],
    "arguments that are no JSON": [[[{"calls": [{"name": "look_up", "arguments": '{"word": '}]}], [SAY]], [[SAY]]],
}
REFUSAL = {"type": "refusal", "refusal": "No."}
NO_CODE = {"type": "code_interpreter_call", "code": None, "container_id": "cntr_9", "outputs": None, "status": "failed"}
IMAGE = {"type": "image_generation_call", "status": "completed", "result": PIXEL.partition(",")[2]}
ODD: dict[str, list[list[list[dict]]]] = {
    "a refusal": [[[THINK, message_item(REFUSAL)]], [[message_item(part("a"), REFUSAL)]], [[SAY]]],
    "parts": [[[THINK, message_item(part("a"), part("b"))]], [[message_item(part(""))]], [[message_item()]], [[SAY]]],
    "the same text again": [[[{"text": "a", "phase": "commentary"}, {"text": "ab"}, {"text": "a"}]], [[{"text": "a"}]]],
    "results that are empty, failures or pictures": [
        [
            [THINK, {"calls": [{"name": "fail"}, {"name": "draw"}]}],
            [THINK, {"calls": [{"name": "fail", "arguments": {"word": "größer"}}]}],
            [THINK, SAY],
        ],
        [[SAY]],
    ],
    "code that failed": [[[{"item": NO_CODE}, THINK, {"code": ""}, THINK, SAY]], [[SAY]]],
    "a picture of the model": [[[THINK, {"item": IMAGE}, SAY]], [[SAY]]],
}
ALL = SCENARIOS | ODD
MODES = {"unset": {}, "true": {"store": True}, "false": {"store": False}}


def lab(scenario, mode):
    new_lab = Lab(tools=[find_word, draw, fail], options=OUTPUTS | MODES[mode])
    for turn in ALL[scenario]:
        new_lab.plan(*({"items": step} for step in turn))
    return new_lab, [f"message {index}" for index, _ in enumerate(ALL[scenario])]


@pytest.mark.drawn(8)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scenario", ALL)
async def test_a_cold_process_sends_what_a_live_one_sends(scenario, mode):
    """Every request is the same, and a model with every known rule accepts it."""
    live, texts = lab(scenario, mode)
    await live.live_turns(texts)
    cold, texts = lab(scenario, mode)
    outcomes = [await cold.cold_turn(text) for text in texts]
    assert [outcome.error for outcome in outcomes] == [None] * len(texts)
    assert cold.endings == ["complete"] * sum(len(turn) for turn in ALL[scenario])
    assert cold.bodies == live.bodies == live.bodies_of_the_sdk


HOSTED = {"code_interpreter_call"}
"""What the framework's client leaves out of a replay, and the live API accepts: `ci-replay-store-default`."""


def comparable_item(item):
    """Reduce an item to what the framework's own history can say of it.

    Left out, each because the recorded accepted replays have it: the id and the phase of a message
    (`fn-phase-encrypted`, and `reasoning-modified-history-400` for what happens without), the id of a call, its status.
    """
    if item["type"] == "message":
        return (item["role"], "".join(part["text"] for part in item["content"]))
    return tuple(
        str(item.get(name)) for name in ("type", "call_id", "name", "arguments", "output", "encrypted_content")
    )


@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if "phases" not in name and "code" not in name])
async def test_everything_that_the_framework_sends_is_sent(scenario):
    """Nothing that a process with the framework's own history sends is missing, and only hosted items are more."""
    plain, texts = lab(scenario, "false")
    plain.service.responses.rules = type(plain.rules)()
    await plain.framework_turns(texts)
    cold, texts = lab(scenario, "false")
    for text in texts:
        await cold.cold_turn(text)
    assert len(cold.inputs) == len(plain.inputs)
    for sent_items, expected_items in zip(cold.inputs, plain.inputs, strict=True):
        assert [comparable_item(item) for item in sent_items if item["type"] not in HOSTED] == [
            comparable_item(item) for item in expected_items
        ]


@pytest.mark.drawn(6)
@pytest.mark.parametrize("mode", ["unset", "true"])
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_service_that_keeps_the_conversation_gets_what_is_new(scenario, mode):
    """Later turns name the response before, and send one message."""
    cold, texts = lab(scenario, mode)
    for text in texts:
        await cold.cold_turn(text)
    first_of_turn = cold.bodies[len(SCENARIOS[scenario][0])]
    assert first_of_turn["previous_response_id"].startswith("resp_")
    assert [item["role"] for item in first_of_turn["input"]] == ["user"]


@pytest.mark.drawn(6)
@pytest.mark.parametrize("mode", ["unset", "true"])
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_lost_continuation_resumes_from_the_transcript(scenario, mode, caplog):
    """One refused call, then the whole conversation with the provider's items; the stats and the log say so."""
    cold, texts = lab(scenario, mode)
    for text in texts[:-1]:
        await cold.cold_turn(text)
    cold.service.store.responses.clear()
    outcome = await cold.cold_turn(texts[-1])
    assert outcome.error is None
    assert outcome.stats.calls_refused == 1
    assert "can no longer use the continuation" in caplog.text
    again = cold.endings.index("refused") + 1
    assert cold.endings.count("refused") == 1
    assert set(cold.endings[again:]) == {"complete"}
    item_ids = [item["id"] for entry in cold.service.request_log.entries[: again - 1] for item in entry["output"]]
    assert [item["id"] for item in cold.inputs[again] if "id" in item] == item_ids
    assert (await cold.cold_turn("and on")).stats.calls_refused == 0


@pytest.mark.parametrize("mode", ["unset", "false"])
async def test_an_expired_container_is_sent_as_text(mode):
    """After a long pause the code and what it printed go on as text, and the next turn is not refused again."""
    cold, texts = lab("code with images and tools", mode)
    await cold.cold_turn(texts[0])
    cold.service.store.expire_containers()
    if mode == "unset":
        cold.service.store.responses.clear()
    outcome = await cold.cold_turn(texts[1])
    assert outcome.error is None
    assert outcome.stats.calls_refused == (2 if mode == "unset" else 1)
    again = max(index for index, ending in enumerate(cold.endings) if ending == "refused") + 1
    text = "".join(part["text"] for item in cold.inputs[again] for part in item.get("content") or [])
    assert "print(1)" in text
    assert "[code_interpreter result: 1\n" in text
    outcome = await cold.cold_turn(texts[2])
    assert outcome.error is None
    assert outcome.stats.calls_refused == 0


async def test_other_refusals_are_not_retried():
    """Another refusal ends the turn with one call."""
    cold = Lab()
    cold.plan({"error": {"status": 400, "message": "The model `m` does not exist"}})
    assert (await cold.cold_turn("hello")).status == "failed"
    assert cold.endings == ["refused"]


def of_upstream(call_ids):
    """A history as upstream stored it: reasoning without its payload, calls without the provider's ids."""
    calls = [
        {"$type": "functionCall", "callId": call_id, "name": "look_up", "arguments": {"word": "a"}}
        for call_id in call_ids
    ]
    results = [{"$type": "functionResult", "callId": call_id, "result": "found"} for call_id in call_ids]
    thought = {"$type": "unknown", "content": {"type": "text_reasoning", "text": "", "id": "rs_1"}}
    request_messages = [{"role": "user", "contents": [{"$type": "text", "text": "look"}]}]
    response_messages = [
        {"role": "assistant", "contents": [thought, *calls]},
        {"role": "tool", "contents": results},
        {"role": "assistant", "contents": [{"$type": "text", "text": "Found."}]},
    ]
    return [
        {"$type": "request", "correlationId": "t", "createdAt": "now", "messages": request_messages},
        {"$type": "response", "correlationId": "t", "createdAt": "now", "messages": response_messages},
    ]


@pytest.mark.drawn(4)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("call_ids", [["call_1", "call_2"], ["toolu_01", "x" * 100], ["größer 😀", "call_1"]], ids=len)
async def test_a_history_that_lost_its_ids_is_accepted(mode, call_ids):
    """Sessions of upstream go on: no reasoning without its payload, valid ids, call ids that pair."""
    cold = Lab(tools=[find_word], options=MODES[mode])
    cold.session = replace(cold.session, entries=(*of_upstream(call_ids), *of_upstream(call_ids)))
    for _ in range(2):
        assert (await cold.cold_turn("go on")).error is None
    first = cold.inputs[0]
    assert [item["type"] for item in first if item["type"] != "message"] == [
        *["function_call"] * 2,
        *["function_call_output"] * 2,
    ] * 2
    ids = [item["id"] for item in first if item["type"] == "function_call"]
    assert len(set(ids)) == 4
    if mode == "false":
        assert [item["id"] for item in cold.inputs[1] if item["type"] == "function_call"] == ids


class Counting(ContextProvider):
    """A context provider that counts its turns in the session's state."""

    def __init__(self):
        super().__init__("counting")
        self.seen = []

    async def before_run(self, *, agent, session, context, state):
        """Count the turn."""
        state["turns"] = state.get("turns", 0) + 1
        self.seen.append((session.session_id, state["turns"]))


@pytest.mark.parametrize("mode", MODES)
async def test_context_providers_go_on_in_one_session(mode):
    """Four turns have one session id, and the provider's state grows."""
    counting = Counting()
    cold = Lab(options=MODES[mode], providers=[counting])
    for index in range(4):
        assert (await cold.cold_turn(f"turn {index}")).error is None
    assert counting.seen == [("session-1", index) for index in range(1, 5)]
    texts = [part["text"] for item in cold.inputs[-1] if item.get("role") == "user" for part in item["content"]]
    assert texts == (["turn 3"] if mode != "false" else [f"turn {index}" for index in range(4)])
