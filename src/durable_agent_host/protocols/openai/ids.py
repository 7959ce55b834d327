"""Ids for clients: each names what it belongs to, so that nothing has to be stored for it."""

import base64
import json
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter

from durable_agent_host.codec.strict_json import object_at
from durable_agent_host.errors import NotFoundError, RequestError
from durable_agent_host.model.ids import check_session_id


class ItemName(NamedTuple):
    """Names a conversation; a response by its turn and its number in that, from 0; or what either has."""

    agent: str
    session_id: str
    turn_id: str = ""
    number: int = 0
    suffix: str | int = ""


_NAME: Final = TypeAdapter(ItemName)


def encode_id(prefix: str, *name: Any) -> str:
    """Make the id of what has the name."""
    text = json.dumps(name, separators=(",", ":"))
    return f"{prefix}_{base64.urlsafe_b64encode(text.encode()).decode().rstrip('=')}"


def find_name(value: Any) -> ItemName | None:
    """Read an id; None for the id of somebody else."""
    try:
        name = _NAME.validate_json(base64.urlsafe_b64decode(str(value).partition("_")[2] + "=="))
        check_session_id(name.session_id)
    except (ValueError, RequestError):
        return None
    return name


def read_name(value: Any, field: str) -> ItemName:
    """Read the id in a field, or in the object there.

    Raises:
        RequestError: there is none.
        NotFoundError: it is none of this host's.
    """
    client_id = object_at(value).get("id", value)
    if not isinstance(client_id, str):
        raise RequestError(f"{field!r} needs an id, which is a text")
    if (name := find_name(client_id)) is None:
        raise NotFoundError(f"{field!r} is {client_id[:200]!r}, which is not here")
    return name
