"""Turns that do not come from the routes, and turns that wait long over a crash, are one trace each."""

from uuid import uuid4

from tests.durable_agent_host.test_scenarios_traces import (
    TURN,
    host,
    named,
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
        found = [one for one in receiver.all_spans() if one.trace == trace and one.name == "session commit"]
        return [str(one.attributes["durable_agent_host.turn.id"]) for one in found] if len(found) == 2 else None

    for turn_id in wait_until(turns):
        spans = [one for one in receiver.all_spans() if one.attributes.get("durable_agent_host.turn.id") == turn_id]
        (root,) = named(spans, TURN)
        assert (root.trace, root.parent) == (trace, span)
        ids = [one.id for one in spans]
        assert len(ids) == len(set(ids))
        assert {one.parent for one in spans} - {span} <= set(ids)
        assert tokens(root) == tokens(*named(spans, "chat practice")) != [0, 0]
