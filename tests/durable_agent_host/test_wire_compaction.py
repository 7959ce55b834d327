"""Compaction: the model gets what the strategies leave, the record keeps everything, and no request is refused."""

import asyncio
import json
import tempfile
import zlib

import pytest
from agent_framework import (
    CharacterEstimatorTokenizer,
    CompactionProvider,
    Content,
    ContextWindowCompactionStrategy,
    SelectiveToolCallCompactionStrategy,
    SlidingWindowStrategy,
    SummarizationStrategy,
    TokenBudgetComposedStrategy,
    ToolResultCompactionStrategy,
    TruncationStrategy,
)
from hypothesis import given, settings, strategies

from durable_agent_host.codec.overlay import decode_overlay
from durable_agent_host.model.provider_item import LOST_RESULT
from durable_agent_host.turn_log.sqlite_log import SqliteTurnLog
from tests.durable_agent_host.test_wire_equivalence import LOOKUP, RUN, SAY, THINK, find_word
from tests.durable_agent_host.wire_lab import Lab
from tests.sweeps import count

STATELESS = {"store": False}


def lab(compaction=None, *, agent_strategy=None, providers=(), turns=6, **more):
    """An agent whose turns think, call a tool and answer; its strategy is the app's, or its own."""
    new_lab = Lab(
        tools=[find_word],
        options=STATELESS,
        compaction=compaction or (lambda client: None),
        agent_arguments={"compaction_strategy": agent_strategy} if agent_strategy else {},
        providers=providers,
        **more,
    )
    new_lab.plan({"text": "A summary."}, times=None, user_text="1. [")
    for _ in range(turns):
        new_lab.plan({"items": [THINK, LOOKUP]}, {"items": [THINK, SAY]})
    return new_lab


async def play(cold, turns=6):
    for index in range(turns):
        assert (await cold.cold_turn(f"question {index}")).error is None
    assert set(cold.endings) == {"complete"}


def kinds(items):
    return [item.get("role") or item["type"] for item in items]


def questions(items):
    """The users' questions among the items of a request."""
    return [part["text"] for item in items if item.get("role") == "user" for part in item["content"]]


def is_summary(body):
    return any("1. [" in text for text in questions(body["input"]))


@pytest.mark.parametrize("level", ["agent", "provider"])
async def test_strategies_of_the_agent_itself_work_hosted(level):
    """The framework's own ways to say it give the same requests as the app's."""
    strategy = SlidingWindowStrategy(keep_last_groups=3)
    app_lab = lab(lambda client: strategy)
    await play(app_lab)
    if level == "agent":
        cold = lab(agent_strategy=strategy)
    else:
        cold = lab(providers=[CompactionProvider(before_strategy=strategy, history_source_id="none")])
    await play(cold)
    assert cold.bodies == app_lab.bodies


async def test_a_summary_is_created_once_and_replaces_its_messages():
    """Later turns send the stored summary; only what has come since is summed up again."""
    cold = lab(lambda client: SummarizationStrategy(client=client, target_count=4, threshold=4))
    await play(cold)
    summaries = [body for body in cold.bodies if is_summary(body)]
    assert 0 < len(summaries) < 6
    first_items = [json.dumps(body["input"][0]) for body in summaries[1:]]
    assert all("question 0" not in json.dumps(body["input"]) for body in summaries[1:]), first_items
    summary, *parts = decode_overlay(cold.session.overlay).parts
    assert "A summary." in json.dumps(summary)
    assert "A summary." not in json.dumps(parts)
    assert "A summary." in json.dumps(cold.inputs[-1])


async def test_a_summary_that_fails_does_not_fail_the_turn(caplog):
    """The model gets the unchanged context, and the log has the reason."""
    cold = lab(lambda client: SummarizationStrategy(client=client, target_count=1, threshold=0), turns=2)
    cold.service.plans.clear()
    cold.plan({"error": {"status": 400, "message": "No summary."}}, times=None, user_text="1. [")
    cold.plan({"text": "One."}, {"text": "Two."})
    for index in range(2):
        assert (await cold.cold_turn(f"question {index}")).error is None
    assert questions(cold.inputs[-1]) == ["question 0", "question 1"]
    assert "summary generation failed" in caplog.text


async def test_a_strategy_that_raises_does_not_fail_the_turn(caplog):
    """So does one of the app."""

    async def broken(messages):
        raise RuntimeError("broken on purpose")

    cold = lab(lambda client: broken, turns=2)
    await play(cold, 2)
    assert questions(cold.inputs[-2]) == ["question 0", "question 1"]
    assert "RuntimeError" in caplog.text


async def test_the_question_is_always_sent():
    """A window of one group keeps the question in addition to the last call."""
    cold = lab(lambda client: SlidingWindowStrategy(keep_last_groups=1))
    await play(cold)
    assert all(f"question {index // 2}" in questions(items) for index, items in enumerate(cold.inputs))


async def test_a_strategy_that_cuts_a_result_keeps_its_call():
    """Contents that a strategy changes are changed for one call; the record and the stored context have them whole."""

    async def shorten(messages):
        for message in messages:
            for index, content in enumerate(message.contents):
                if content.type == "function_result" and "found" in str(content.result):
                    message.contents[index] = Content.from_function_result(content.call_id, result="(cut)")
        return True

    cold = lab(lambda client: shorten)
    await play(cold)
    outputs = [item["output"] for item in cold.inputs[-1] if item["type"] == "function_call_output"]
    assert outputs == ["(cut)"] * 6
    assert "(cut)" not in json.dumps(cold.session.entries)
    assert cold.session.overlay is None
    assert "found" in json.dumps(cold.session.entries)


async def test_an_overlay_of_other_strategies_is_replaced():
    """A window that was widened gives the model what the record has."""
    cold = lab(lambda client: SlidingWindowStrategy(keep_last_groups=2))
    await play(cold, 4)
    cold.compaction = lambda client: SlidingWindowStrategy(keep_last_groups=100)
    assert (await cold.cold_turn("and now")).error is None
    assert questions(cold.inputs[-2])[:4] == [f"question {index}" for index in range(4)]
    assert cold.session.overlay is None


async def test_a_failed_turn_keeps_its_summary(tmp_path):
    """A summary that was paid for before the model failed serves the next turn."""
    cold = lab(lambda client: SummarizationStrategy(client=client, target_count=3, threshold=1), turns=0)
    refusal = {"error": {"status": 400, "message": "No."}}
    cold.plan({"text": "One."}, {"text": "Two."}, refusal, {"text": "Three."})
    log = SqliteTurnLog(str(tmp_path / "log.db"))
    try:
        outcomes = [await cold.cold_turn(f"question {index}", lambda: log) for index in range(4)]
    finally:
        await log.close()
    assert [outcome.status for outcome in outcomes] == ["completed", "completed", "failed", "completed"]
    assert [refused["message"] for refused in cold.refusals] == ["No."]
    assert sum(map(is_summary, cold.bodies)) == 1


async def test_a_failed_turn_leaves_the_context_as_it_was():
    """What a strategy has left out for a long question comes back when that turn fails."""
    strategy = TruncationStrategy(max_n=5000, compact_to=5000, tokenizer=CharacterEstimatorTokenizer())
    cold = lab(lambda client: strategy, turns=2)
    await play(cold, 2)
    cold.plan({"error": {"status": 400, "message": "No."}}, {"items": [SAY]})
    assert (await cold.cold_turn("long " * 8000)).status == "failed"
    assert (await cold.cold_turn("question 2")).error is None
    assert questions(cold.inputs[-1]) == ["question 0", "question 1", "question 2"]


SERVICE_OPTIONS = {"store": False, "context_management": [{"type": "compaction", "compact_threshold": 1000}]}


def compacting_service(**options):
    """A service that compacts in its third answer."""
    new_lab = Lab(tools=[find_word], options=SERVICE_OPTIONS | options)
    new_lab.plan({"items": [THINK, LOOKUP]}, {"items": [THINK, SAY]})
    new_lab.plan(
        {"items": [{"compaction": "So far."}, THINK, LOOKUP]}, {"items": [THINK, SAY]}, {"items": [THINK, SAY]}
    )
    return new_lab


async def test_what_a_service_has_compacted_is_not_sent_again():
    """Its item goes back verbatim, with what came after it; the record has the rest, and names the first entry."""
    cold = compacting_service()
    await play(cold, 3)
    item = next(item for item in cold.service.request_log.entries[2]["output"] if item["type"] == "compaction")
    within, after = cold.inputs[3], cold.inputs[4]
    assert kinds(within) == ["user", "compaction", "reasoning", "function_call", "function_call_output"]
    assert questions(within) == ["question 1"]
    assert within[1] == after[0] == item
    assert questions(after) == ["question 2"]
    overlay = decode_overlay(cold.session.overlay)
    assert (overlay.has_any(0, 3), overlay.has_any(3, 4)) == (False, True)
    assert len(cold.session.entries) == 6


async def test_a_conversation_of_the_service_is_not_compacted():
    """A conversation that the service continues is not touched; when it is forgotten, the record is sent."""
    cold = compacting_service(store=True)
    await play(cold, 2)
    assert kinds(cold.inputs[3]) == ["function_call_output"]
    cold.service.store.responses.clear()
    assert (await cold.cold_turn("question 2")).error is None
    assert kinds(cold.inputs[-1])[0] == "compaction"


async def test_an_agent_without_the_option_sends_what_came_before_the_item():
    """The item stays in its position, for a service that may know it."""
    cold = compacting_service()
    await play(cold, 2)
    cold.options = STATELESS
    assert (await cold.cold_turn("question 2")).error is None
    assert questions(cold.inputs[-1]) == ["question 0", "question 1", "question 2"]
    assert kinds(cold.inputs[-1]).count("compaction") == 1


STRATEGIES = {
    "window": lambda client: SlidingWindowStrategy(keep_last_groups=2),
    "truncation": lambda client: TruncationStrategy(max_n=6, compact_to=3, preserve_first_user_group=True),
    "tool calls": lambda client: SelectiveToolCallCompactionStrategy(keep_last_tool_call_groups=1),
    "tool results": lambda client: ToolResultCompactionStrategy(keep_last_tool_call_groups=1),
    "summary": lambda client: SummarizationStrategy(client=client, target_count=2, threshold=1),
    "budget": lambda client: TokenBudgetComposedStrategy(
        token_budget=600,
        tokenizer=CharacterEstimatorTokenizer(),
        strategies=[
            ToolResultCompactionStrategy(keep_last_tool_call_groups=1),
            SummarizationStrategy(client=client, target_count=2, threshold=1),
        ],
    ),
    "context window": lambda client: ContextWindowCompactionStrategy(
        max_context_window_tokens=1500, max_output_tokens=500, keep_last_tool_call_groups=1
    ),
}


def drawn_cuts(seed):
    """A strategy of the app that excludes random messages."""

    async def cut(messages):
        for message in messages:
            if zlib.crc32(f"{seed}{message.message_id}".encode()) % 3 == 0:
                message.additional_properties["_excluded"] = True
        return True

    return cut


def has_complete_calls(items):
    """Whether every call has its own result, and every result its call."""
    calls = [item["call_id"] for item in items if item["type"] == "function_call"]
    outputs = [item["call_id"] for item in items if item["type"] == "function_call_output"]
    return sorted(calls) == sorted(outputs) and LOST_RESULT not in json.dumps(items)


def begins_with_question(items):
    """Whether a request begins with a user's message, or with what the service has compacted."""
    return next(kind for kind in kinds(items) if kind not in {"system", "developer"}) in {"user", "compaction"}


STEPS = [
    [THINK, LOOKUP],
    [LOOKUP],
    [THINK, {"text": "I look.", "phase": "commentary"}, LOOKUP],
    [THINK, {"calls": [{"name": "look_up", "arguments": {"word": word}} for word in "abc"]}],
    [THINK, RUN, THINK, LOOKUP],
    [{"compaction": "So far."}, THINK, LOOKUP],
]
END_STEPS = [[SAY], [THINK, SAY], [THINK, RUN, THINK, {"text": "See:", "files": ["a.csv"]}], [{"text": ""}]]
conversations = strategies.lists(
    strategies.tuples(strategies.lists(strategies.sampled_from(STEPS), max_size=3), strategies.sampled_from(END_STEPS)),
    min_size=2,
    max_size=5,
)
compactions = strategies.one_of(
    strategies.sampled_from([*STRATEGIES.values()]),
    strategies.integers(0, 999).map(lambda seed: lambda client: drawn_cuts(seed)),
)


@pytest.mark.timeout(1800)
@settings(max_examples=count("EXAMPLES", short=6, long=300))
@given(
    conversation=conversations,
    compaction=compactions,
    has_service_compaction=strategies.booleans(),
    deaths=strategies.randoms(),
)
def test_every_cut_is_accepted_and_the_same_in_every_process(conversation, compaction, has_service_compaction, deaths):
    """Drawn conversations, strategies and cuts: no request is refused; cold, warm and killed runs send the same."""

    def drawn():
        new_lab = Lab(
            tools=[find_word], options=SERVICE_OPTIONS if has_service_compaction else STATELESS, compaction=compaction
        )
        new_lab.plan({"text": "A summary."}, times=None, user_text="1. [")
        for steps, end in conversation:
            new_lab.plan(*({"items": step} for step in (*steps, end)))
        return new_lab

    async def run():
        texts = [f"question {index}" for index in range(len(conversation))]
        cold, warm, killed_lab = drawn(), drawn(), drawn()
        outcomes = [await cold.cold_turn(text) for text in texts]
        outcomes += await warm.warm_turns(texts)
        with tempfile.TemporaryDirectory() as folder:
            log = SqliteTurnLog(f"{folder}/log.db")
            try:
                outcomes += [await killed_lab.killed_turn(text, deaths.randrange(1, 6), lambda: log) for text in texts]
            finally:
                await log.close()
        assert [outcome.error for outcome in outcomes] == [None] * len(outcomes)
        assert {*cold.endings, *warm.endings, *killed_lab.endings} == {"complete"}
        assert all(map(has_complete_calls, cold.inputs))
        assert all(map(begins_with_question, cold.inputs))
        assert warm.bodies == cold.bodies
        assert killed_lab.bodies == cold.bodies
        assert killed_lab.session.overlay == warm.session.overlay == cold.session.overlay
        assert len(cold.session.entries) == 2 * len(texts)

    asyncio.run(run())


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_every_strategy_of_the_framework_builds_valid_requests(strategy):
    """Six turns with reasoning and tools; the model with every known rule accepts each request."""
    cold = lab(STRATEGIES[strategy])
    await play(cold)
    assert all(map(begins_with_question, cold.inputs))
    assert len(json.dumps(cold.inputs[-1])) < len(json.dumps(cold.session.entries))
