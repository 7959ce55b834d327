"""Turns that do not come from the routes, and turns that wait long over a crash, are one trace each."""

from uuid import uuid4

from tests.durable_agent_host.test_scenarios_traces import (
    TURN,
    find_spans,
    host,
    receiver,
    tokens,
)
from tests.kit import AgentHost, PracticeModel
from tests.otlp import Receiver
from tests.processes import wait_until

__all__ = ["host", "receiver"]


def test_turns_of_an_orchestration_are_in_its_trace(host: AgentHost, model: PracticeModel, receiver: Receiver):
    """Each turn is a tree of its own below the span that the orchestration carries, and counts its own tokens."""
    model.plan({"text": "yes"}, times=None)
    trace, span = uuid4().hex, uuid4().hex[:16]
    assert host.orchestrate("talk", {"traceparent": f"00-{trace}-{span}-01"})["runtimeStatus"] == "Completed"

    def turns() -> list[str] | None:
        commits = [
            sent_span
            for sent_span in receiver.all_spans()
            if sent_span.trace == trace and sent_span.name == "session commit"
        ]
        return (
            [str(sent_span.attributes["durable_agent_host.turn.id"]) for sent_span in commits]
            if len(commits) == 2
            else None
        )

    for turn_id in wait_until(turns):
        spans = [
            sent_span
            for sent_span in receiver.all_spans()
            if sent_span.attributes.get("durable_agent_host.turn.id") == turn_id
        ]
        (root,) = find_spans(spans, TURN)
        assert (root.trace, root.parent) == (trace, span)
        ids = [sent_span.id for sent_span in spans]
        assert len(ids) == len(set(ids))
        assert {sent_span.parent for sent_span in spans} - {span} <= set(ids)
        assert tokens(root) == tokens(*find_spans(spans, "chat practice")) != [0, 0]
