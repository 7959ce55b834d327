"""Tokens at a collector while the host is killed at random: spans and metrics have each token of the model once."""

import itertools
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests

from tests.durable_agent_host.crash.site import Site
from tests.durable_agent_host.test_scenarios_journal import call
from tests.kit import PracticeModel
from tests.otlp import Receiver
from tests.processes import wait_until
from tests.sweeps import chooser, count

KILLS = count("KILLS", short=3, long=100)
CLIENTS = 3
LONGEST_LIFE_SECONDS = 1.0
TELEMETRY = Path(__file__).resolve().parent.parent / "apps" / "telemetry"
KINDS = ("input", "output")


def keep_asking(site: Site, stop: threading.Event, numbers: Iterator[int]) -> list[dict[str, Any]]:
    """Hold one turn after the other, each until it is answered."""
    answers: list[dict[str, Any]] = []
    while not stop.is_set():
        number = next(numbers)
        asked = {"message": f"note number {number}", "session_id": f"s-{number}"}
        answer = site.ask("POST", "/agents/Traced/run", json=asked, headers={"Idempotency-Key": uuid4().hex})
        assert answer.ok, answer.text
        answers.append(answer.json())
    return answers


def spent_at(model: PracticeModel) -> dict[str, int]:
    """Add up what the model counted itself: each call of a turn once, however often a kill has let it be repeated."""
    calls: dict[str, str] = {}
    for entry in model.requests():
        if entry["ended"] == "complete":
            calls[json.dumps([entry["body"]["input"], entry["body"].get("previous_response_id")])] = entry[
                "response_id"
            ]
    total = dict.fromkeys(KINDS, 0)
    for response_id in calls.values():
        usage = requests.get(f"{model.url}/responses/{response_id}", timeout=30).json()["usage"]
        for kind in KINDS:
            total[kind] += usage[f"{kind}_tokens"]
    return total


def in_spans(receiver: Receiver) -> dict[str, int]:
    """Add up the tokens of the spans of turns; a span that came twice is one."""
    turns = {(span.trace, span.id): span for span in receiver.all_spans() if span.name == "agent_turn Traced"}
    return {kind: sum(one.attributes[f"gen_ai.usage.{kind}_tokens"] for one in turns.values()) for kind in KINDS}


def in_metrics(receiver: Receiver) -> dict[str, int]:
    """Add up the counters of tokens over all processes."""
    return {kind: int(receiver.total("durable_agent_host.tokens", gen_ai__token__type=kind)) for kind in KINDS}


@pytest.mark.sweep
@pytest.mark.timeout(600 + 6 * KILLS)
def test_tokens_at_a_collector_are_the_models(model: PracticeModel, tmp_path: Path):
    """Spans and metrics have the tokens that the model counted, to the token, after many random kills."""
    model.plan({"calls": [call("note", text="one")]}, {"text": "It is noted."}, by_round=True, times=None)
    draw, stop, numbers = chooser("tokens told"), threading.Event(), itertools.count()
    slow = {"OTEL_BSP_SCHEDULE_DELAY": "150", "OTEL_METRIC_EXPORT_INTERVAL": "250"}
    with Receiver() as receiver, ThreadPoolExecutor(CLIENTS) as pool:
        site = Site(tmp_path, model, app=TELEMETRY, env=receiver.environment(**slow))
        try:
            clients = [pool.submit(keep_asking, site, stop, numbers) for _ in range(CLIENTS)]
            try:
                while len(site.kills) < KILLS and not any(one.done() for one in clients):
                    time.sleep(draw.uniform(0, LONGEST_LIFE_SECONDS))
                    site.kill()
            finally:
                stop.set()
            answers = [answer for one in clients for answer in one.result()]
            spent = spent_at(model)
            assert spent == {kind: sum(answer["usage"][f"{kind}_token_count"] for answer in answers) for kind in KINDS}
            wait_until(lambda: receiver.total("durable_agent_host.turns") >= len(answers))
            wait_until(lambda: in_spans(receiver) == spent)
            time.sleep(1)  # what would be told too often comes, too
        finally:
            site.close()
        told = {"spans": in_spans(receiver), "metrics": in_metrics(receiver), "turns": len(answers)}
        assert told == {"spans": spent, "metrics": spent, "turns": receiver.total("durable_agent_host.turns")}
        print(f"{len(site.kills)} kills, {len(answers)} turns, {spent}")
