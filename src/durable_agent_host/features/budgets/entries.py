"""The entries of budgets: what model calls have reserved, and how long the agent has worked.

A call that begins reserves; what it reserved is raised as its answer grows, and released when the service has rejected
it. A call with a response needs no entry of its end: the journal has that.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from durable_agent_host.codec.content import decode_usage
from durable_agent_host.model.budget import Reservation, is_measured
from durable_agent_host.model.call_path import TURN_AGENT, CallPath
from durable_agent_host.model.journal_entry import FeatureEntry
from durable_agent_host.turn_log.journal import JournalState

NAME: Final = "budget"


@dataclass
class BudgetRecords:
    """What the journal says of a turn's usage, besides its responses and tool calls.

    Attributes:
        reserved: the reservations of model calls without a recorded end.
        unmeasured: the reservations of calls whose responses had no token counts.
        seconds: working time of the agent, as last recorded.
    """

    reserved: dict[CallPath, list[Reservation]] = field(default_factory=dict[CallPath, list[Reservation]])
    unmeasured: list[Reservation] = field(default_factory=list[Reservation])
    seconds: float = 0.0

    def add(self, entry: FeatureEntry) -> None:
        """Add the next entry."""
        self.seconds = max(self.seconds, entry.data.get("seconds", 0.0))
        open_calls = self.reserved.setdefault(entry.path, [])
        match entry.data["kind"]:
            case "reserved":
                if entry.data.get("continues"):
                    open_calls.clear()
                open_calls.append(_decode_reservation(entry.data))
            case "raised":
                open_calls[-1:] = [_decode_reservation(entry.data)]
            case "released":
                del open_calls[-1:]
            case _:
                pass

    def end(self, path: CallPath, response: Mapping[str, Any]) -> None:
        """Add the end of a call: its latest reservation is over, and earlier ones remain open."""
        if open_calls := self.reserved.get(path):
            last = open_calls.pop()
            usage = response.get("usage")
            if not (usage and is_measured(decode_usage(usage))):
                self.unmeasured.append(last)


def read_budget_entries(records: JournalState) -> BudgetRecords:
    """Read the entries of a turn."""
    budget_records = BudgetRecords()
    for entry in records.feature_entries.get(NAME, ()):
        budget_records.add(entry)
    for path, response in (*records.responses.items(), *records.compaction_responses.items()):
        budget_records.end(path, response)
    return budget_records


def entry_of_reservation(path: CallPath, reservation: Reservation, seconds: float, *, continues: bool) -> FeatureEntry:
    """Make the entry of a call that begins.

    Args:
        path: of the call.
        reservation: its possible spending.
        seconds: how long the agent had worked on the turn.
        continues: whether the service continues the call, so that earlier reservations are part of this one.
    """
    data = {"kind": "reserved", **_encode_reservation(reservation), "seconds": seconds}
    return FeatureEntry(NAME, path, data | ({"continues": True} if continues else {}))


def entry_of_raise(path: CallPath, reservation: Reservation) -> FeatureEntry:
    """Make the entry of a call that has used more than it had reserved, by its output so far."""
    return FeatureEntry(NAME, path, {"kind": "raised", **_encode_reservation(reservation)})


def entry_of_release(path: CallPath) -> FeatureEntry:
    """Make the entry of a call that has used nothing: the service rejected it."""
    return FeatureEntry(NAME, path, {"kind": "released"})


def entry_of_time(seconds: float) -> FeatureEntry:
    """Make the entry of how long the agent has worked, in all attempts so far."""
    return FeatureEntry(NAME, TURN_AGENT, {"kind": "worked", "seconds": seconds})


def _encode_reservation(reservation: Reservation) -> dict[str, Any]:
    cost = {} if reservation.cost is None else {"cost": reservation.cost}
    return {"tokens": reservation.tokens, **cost}


def _decode_reservation(data: Mapping[str, Any]) -> Reservation:
    return Reservation(data["tokens"], data.get("cost"))
