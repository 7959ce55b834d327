"""Ids for clients: each names what it belongs to, so that nothing has to be stored for it."""

import base64
import json
from typing import Any, NamedTuple

from durable_agent_host.errors import NotFoundError


class ItemName(NamedTuple):
    """Names a response by its turn and its number in that, from 0; or an item, or a call, of the response."""

    agent: str
    session_id: str
    turn_id: str
    number: int
    suffix: Any = ""


def encode_id(prefix: str, *parts: Any) -> str:
    """Make an id of the names of what it belongs to."""
    text = json.dumps(parts, separators=(",", ":"))
    return f"{prefix}_{base64.urlsafe_b64encode(text.encode()).decode().rstrip('=')}"


def decode_id(value: Any) -> Any:
    """Return the parts of an id, a list; None for the id of somebody else."""
    try:
        return json.loads(base64.urlsafe_b64decode(str(value).partition("_")[2] + "=="))
    except ValueError:
        return None


def find_name(value: Any) -> ItemName | None:
    """Read the id of a response, an item or a call; None for the id of somebody else."""
    match decode_id(value):
        case [str(agent), str(session_id), str(turn_id), int(number), *suffix]:
            return ItemName(agent, session_id, turn_id, number, suffix[0] if suffix else "")
        case _:
            return None


def response_name(value: Any) -> ItemName:
    """Read the id of a response.

    Raises:
        NotFoundError: it is none of this host's.
    """
    if (name := find_name(value)) is None:
        raise NotFoundError(f"there is no response {str(value)[:200]!r}")
    return name


def session_name(value: Any) -> tuple[str, str]:
    """Read the id of a conversation.

    Raises:
        NotFoundError: it is none of this host's.
    """
    match decode_id(value):
        case [str(agent), str(session_id)]:
            return agent, session_id
        case _:
            raise NotFoundError(f"there is no conversation {str(value)[:200]!r}")
