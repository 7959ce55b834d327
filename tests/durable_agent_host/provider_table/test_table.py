"""The table of what is kept says what is measured now."""

from pathlib import Path

import pytest

from durable_agent_host.providers.registry import provider_for
from tests.durable_agent_host.provider_lab import KINDS, ProviderLab
from tests.durable_agent_host.provider_table.services import write_services
from tests.durable_agent_host.provider_table.table import PROVIDERS, measure_row
from tests.sweeps import IS_LONG, chooser

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "providers.md"


@pytest.mark.sweep
@pytest.mark.parametrize("kind", KINDS)
async def test_the_page_has_the_measured_values(kind):
    """`scripts/provider-table` writes the page again, when something has changed."""
    title, probes = PROVIDERS[kind]
    rows = PAGE.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0].splitlines()
    assert sum(row.startswith("| `") for row in rows) == len(probes)
    for probe in chooser(f"table of {kind}").sample(probes, len(probes) if IS_LONG else len(probes) // 4):
        assert await measure_row(kind, probe) in rows


def test_the_page_has_the_measured_services():
    """The same for what the services get, alone because it takes a moment only."""
    assert PAGE.read_text(encoding="utf-8").endswith(write_services())


def test_nothing_is_left_out_of_the_table():
    """Each client that the labs can make has its probes, and each block of them a row."""
    assert PROVIDERS.keys() == KINDS.keys()
    for name, (_, probes) in PROVIDERS.items():
        rows = [(probe.block, probe.value) for probe in probes]
        assert len(rows) == len(set(rows)) > 0, name


@pytest.mark.parametrize("kind", KINDS)
async def test_a_provider_with_blocks_of_its_own_names_them(kind):
    """What a provider has stamped is its own when the conversation goes on: its name is in its stamps."""
    async with ProviderLab().agent(kind) as agent:
        assert provider_for(agent.client).target.provider
