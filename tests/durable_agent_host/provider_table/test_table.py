"""docs/reference/providers.md: each value of a block is stored, and sent back by another process."""

import json
from typing import Any

import pytest
from agent_framework import tool

from tests.durable_agent_host.provider_lab import KINDS, ProviderLab
from tests.durable_agent_host.provider_table.probes import MARK, Probe
from tests.durable_agent_host.provider_table.table import PROBES

NOT_REPLAYED = {("code_interpreter_call", "logs"), ("audio", "transcript"), ("a step that nobody knows", "mood")}
"""Values that the services do not take."""
ROWS = [pytest.param(kind, probe, id=f"{kind}-{probe.block}-{probe.value}") for kind in KINDS for probe in PROBES[kind]]


@tool(name="note")
def count_characters(text: str) -> str:
    """Take a note."""
    return f"noted {len(text)} characters"


@pytest.mark.drawn(12)
@pytest.mark.parametrize(("kind", "probe"), ROWS)
async def test_a_value_is_stored_and_replayed(kind: str, probe: Probe):
    """The mark is in the stored session, and in the next request, which the service takes."""
    lab = ProviderLab(tools=[count_characters])
    lab.plan(*({"items": list(items)} for items in probe.steps))
    await lab.cold_turn(kind, "Begin")
    assert MARK in lab.document
    if KINDS[kind].keeps_conversation:
        await lab.lose_conversation()
    before = len(lab.bodies)
    outcome = await lab.cold_turn(kind, "Go on")
    assert (outcome.status, lab.refusals) == ("completed", [])
    sent: list[Any] = lab.bodies[before:]
    request = sent if KINDS[kind].keeps_conversation else sent[-1]  # a message is a request of its own there
    assert (MARK in json.dumps(request)) is ((probe.block, probe.value) not in NOT_REPLAYED)
