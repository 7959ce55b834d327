"""The work on a session according to its stored document: running or waiting turns, an erasure. Pure."""

from contextlib import suppress
from typing import Any

from durable_agent_host.codec.state import decode_session
from durable_agent_host.errors import StateError, TurnRejectedError


def is_erasing(state: Any) -> bool:
    """Return whether a session is being erased. Guarantee: pure.

    Args:
        state: the entity's state, readable or not.
    """
    with suppress(StateError):
        return bool(decode_session(state).erasing)
    return False


def refuse_busy(state: Any) -> None:
    """Refuse to overwrite a session in which a turn runs or waits.

    Guarantee: pure.

    Args:
        state: the entity's state, readable or not.

    Raises:
        TurnRejectedError: a turn runs or waits.
    """
    try:
        session = decode_session(state)
    except StateError:
        return  # no turn can be admitted to an unreadable session
    if holder := session.running or next(iter(session.queue), None):
        raise TurnRejectedError(
            f"turn {holder} of the session is running or waits: try again when it has ended", running_turn_id=holder
        )
