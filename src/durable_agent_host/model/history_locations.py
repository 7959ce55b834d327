"""Where an agent's conversations are kept beside the host's own record."""

from dataclasses import dataclass
from typing import Final

from durable_agent_host.errors import HistoryElsewhereError

_OPERATIONS: Final = {
    "delete": (
        "deleted",
        (
            "give the provider a method clear(session_id); or delete its messages there, then repeat the request with "
            "?history=kept, which deletes what the host has: its own record, the receipts, the turns and their logs"
        ),
    ),
    "fork": ("forked", "copy the messages there"),
    "fork at": (
        "forked at a turn",
        "leave at_turn out to fork the whole conversation",
    ),
    "import": ("imported", "store the messages there"),
    "repair": ("repaired", "fix the messages there"),
    "reset": ("reset", "give the provider a method clear(session_id), or delete its messages there"),
}
_CLEARS: Final = frozenset({"delete", "reset"})
_OF_CONTENT: Final = frozenset({"fork", "import", "repair"})


@dataclass(frozen=True)
class HistoryLocations:
    """Where an agent's conversations are kept beside the host's own record.

    Attributes:
        owners: names of the providers that supply the model's history.
        copies: names of the providers that only keep a copy.
        in_session: whether the history is in the framework's session state, which the host keeps with the session.
        lasting: owners that cannot delete a conversation.
    """

    owners: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()
    in_session: bool = False
    lasting: tuple[str, ...] = ()

    def reject_unsupported(self, agent: str, operation: str) -> None:
        """Refuse an operation that a provider does not support, before anything is done.

        Args:
            agent: its name.
            operation: ``delete``, ``fork``, ``fork at`` (a turn), ``import``, ``repair`` or ``reset``.

        Raises:
            HistoryElsewhereError: says who keeps the conversation, and how to do it.
        """
        done, instruction = _OPERATIONS[operation]
        keepers = self.owners if operation in _OF_CONTENT else self.lasting if operation in _CLEARS else ()
        if keepers:
            raise HistoryElsewhereError(
                f"the conversations of agent {agent!r} are kept by {' and '.join(keepers)}, and cannot be {done} "
                f"from here: {instruction}"
            )
        if self.in_session and operation == "fork at":
            raise HistoryElsewhereError(
                f"the conversations of agent {agent!r} are kept by InMemoryHistoryProvider, as one piece in the state "
                f"of the framework's session, and cannot be {done}: {instruction}, "
                "or host the agent without that provider"
            )
