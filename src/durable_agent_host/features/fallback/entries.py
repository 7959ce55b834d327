"""The entries of fallbacks: which client answers, since which model call, and why."""

from typing import Final

from durable_agent_host.features.fallback.clients import Switch
from durable_agent_host.model.journal_entry import FeatureEntry
from durable_agent_host.turn.step_types import FeatureView

NAME: Final = "fallback"


def entry_of_switch(switch: Switch, name: str, reason: str) -> FeatureEntry:
    """Make the entry of a switch.

    Args:
        switch: to another client.
        name: of the client's class.
        reason: a sentence.
    """
    data = {"client": switch.client, "failed": switch.failed, "name": name, "reason": reason}
    return FeatureEntry(NAME, switch.path, data)


def switch_of_entry(entry: FeatureEntry) -> Switch:
    """Read an entry."""
    return Switch(entry.path, entry.data["client"], entry.data["failed"])


def show_switch(entry: FeatureEntry) -> FeatureView:
    """Show a switch, and the client with the model calls that follow."""
    name = entry.data["name"]
    step = {"kind": "fallback", "client": name, "reason": entry.data["reason"]}
    return FeatureView(step, {"client": name if entry.data["client"] else None})
