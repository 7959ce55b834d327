"""What a stored document says of the work on its session: turns that run or wait, an erasure. Pure."""

from contextlib import suppress
from typing import Any

from durable_agent_host.codec.state import decode_session
from durable_agent_host.errors import StateError, TurnRejectedError


def is_erasing(state: Any) -> bool:
    """Tell whether a session is being erased. Guarantee: pure.

    Args:
        state: what the entity holds, readable or not.
    """
    with suppress(StateError):
        return bool(decode_session(state).erasing)
    return False


def refuse_busy(state: Any) -> None:
    """Refuse to overwrite a session in which a turn runs or waits.

    Guarantee: pure.

    Args:
        state: what the entity holds, readable or not.

    Raises:
        TurnRejectedError: a turn runs or waits.
    """
    try:
        session = decode_session(state)
    except StateError:
        return  # no turn can be admitted to a session that cannot be read
    if holder := session.running or next(iter(session.queue), None):
        raise TurnRejectedError(
            f"turn {holder} of the session is running or waits: try again when it has ended", running_turn_id=holder
        )
