"""A feature that the kernel does not know: what it writes down is there in the next attempt."""

from pathlib import Path
from uuid import uuid4

from agent_framework import Agent, ChatContext, Message
from agent_framework_openai import OpenAIChatClient

from durable_agent_host.agent.agent_runner import AgentRunner
from durable_agent_host.agent.feature import AgentFeature, CurrentRun, RunPart
from durable_agent_host.features.pending_calls.feature import PendingKinds
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.ids import turn_log_id
from durable_agent_host.model.journal_entry import FeatureEntry
from durable_agent_host.model.session import Session
from durable_agent_host.providers.registry import provider_for
from durable_agent_host.turn_log.sqlite_log import SqliteTurnLog
from tests.durable_agent_host.agent.test_call_order import call, pay
from tests.durable_agent_host.agent.test_runner import CLIENTS, REQUEST, scenario
from tests.kit import PracticeModel


class Lots(AgentFeature):
    """Draws a lot for each model call, and tells the model."""

    def begin_run(self, run: CurrentRun, /) -> RunPart:
        """Tell the model the lots that were drawn, and draw others."""
        drawn = {entry.path: entry.data["lot"] for entry in run.journal.entries_of("lots")}

        async def add_lot(context: ChatContext, path: CallPath, /, *, is_replayed: bool) -> None:
            del is_replayed
            if path not in drawn:
                drawn[path] = uuid4().hex
                await run.journal.append(FeatureEntry("lots", path, {"lot": drawn[path]}))
            context.messages = [*context.messages, Message("user", [f"lot {drawn[path]}"])]

        return RunPart(add_messages=add_lot)


def test_a_feature_finds_its_entries_in_the_next_attempt(tmp_path: Path, model: PracticeModel):
    """The model gets the same lot for the same call, whoever asks; the call that was answered is not made again."""

    async def play(log: SqliteTurnLog) -> None:
        model.plan(call("pay", {"amount": 1}), {"text": "Done."})
        client = OpenAIChatClient(model="practice", api_key="practice", base_url=model.url)
        CLIENTS.append(client)
        agent = Agent(client, "Work.", name="Agent", tools=[pay], default_options={"store": False})
        runner = AgentRunner("Agent", agent, provider_for, open_log=lambda: log, features=[Lots(), PendingKinds()])
        (waiting_call,) = (await runner.run(Session(), REQUEST)).pending
        outcome = await runner.run(Session(), REQUEST, {waiting_call["call_id"]: {"approved": True}})
        assert (outcome.status, outcome.text) == ("completed", "Done.")
        first, second = [str(request["body"]["input"]) for request in model.requests()]
        assert (first.count("lot "), second.count("lot ")) == (1, 1)
        records = (await log.read(log_id_of())).records
        assert [record.entry.data["position"] for record in records if record.entry.kind == "feature"] == [0, 1]

    scenario(tmp_path, play)


def log_id_of() -> str:
    """The log of the turn."""
    return turn_log_id(REQUEST.agent, REQUEST.session_id, REQUEST.turn_id)
