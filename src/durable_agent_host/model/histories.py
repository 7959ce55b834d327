"""Where an agent's conversations are kept beside the host's own record."""

from dataclasses import dataclass
from typing import Final

from durable_agent_host.errors import HistoryElsewhereError

_HOW: Final = {
    "delete": (
        "deleted",
        (
            "delete its messages there (many providers have clear(session_id)), then repeat the request with "
            "?history=kept, which deletes what the host has: its own record, the receipts, the turns and their logs"
        ),
    ),
    "fork": (
        "forked",
        (
            "copy its messages there under the id of a new session (get_messages, then save_messages), and run the "
            "next turn with that id"
        ),
    ),
    "fork at": (
        "forked at a turn",
        "leave at_turn out to fork the whole conversation",
    ),
    "import": (
        "imported",
        "save its messages there under the session's id (save_messages), and run the next turn with that id",
    ),
    "repair": ("repaired", "mend its messages there: what the model is given comes from there"),
    "reset": ("reset", "delete its messages there (many providers have clear(session_id))"),
}


@dataclass(frozen=True)
class Histories:
    """Where an agent's conversations are kept beside the host's own record.

    Attributes:
        owners: names of the providers that give the model its history, and that the host cannot reach into.
        copies: names of the providers that only keep a copy.
        in_session: whether the history is in the framework's session state, which the host keeps with the session.
    """

    owners: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()
    in_session: bool = False

    def refuse(self, agent: str, what: str) -> None:
        """Refuse an operation that would leave the conversation as it is elsewhere.

        Args:
            agent: its name.
            what: ``delete``, ``fork``, ``fork at`` (a turn), ``import``, ``repair`` or ``reset``.

        Raises:
            HistoryElsewhereError: the conversation does not live with the host; says where, and how to do it.
        """
        done, how = _HOW[what]
        if self.owners:
            raise HistoryElsewhereError(
                f"the conversations of agent {agent!r} are kept by {' and '.join(self.owners)}, where they cannot be "
                f"{done} from here: {how}"
            )
        if self.in_session and what == "fork at":
            raise HistoryElsewhereError(
                f"the conversations of agent {agent!r} are kept by InMemoryHistoryProvider, as one piece in the state "
                f"of the framework's session, and cannot be {done}: {how}, or host the agent without that provider"
            )
