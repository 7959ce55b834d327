"""Writes docs/reference/providers.md from what is measured."""

import asyncio
from pathlib import Path

from tests.durable_agent_host.provider_table.table import write_table

if __name__ == "__main__":
    Path("docs/reference/providers.md").write_text(asyncio.run(write_table()), encoding="utf-8")
