"""The owner of a session: set by the first admitted turn, and never changed."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from durable_agent_host.errors import NotFoundError
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.principal import THE_APP, Owner
from durable_agent_host.model.session import Session


def bind_session(session: Session, owner: Owner | None) -> Session | None:
    """Bind a session to the first caller who acts in it.

    Returns:
        The session to store, or None when it belongs to somebody else.
    """
    if session.owner is None:
        is_new = not session.document
        return session if owner is None and not is_new else replace(session, owner=owner or THE_APP)
    return session if owner is None or owner == session.owner else None


def external_session_id(session_id: str, owner: Owner | None) -> str:
    """Return the id by which history providers of the app know a new session.

    A provider knows nobody's owner, and may still have, or get from a request that loses a race for the session, what
    another owner of the same id has said. So the ids of two owners differ.

    Returns:
        A mark of the owner and the session's id; the id itself for a session of nobody or of the app.
    """
    if owner is None or owner == THE_APP:
        return session_id
    return f"{derived_id('kept-for', owner.tenant, owner.principal)[:16]}~{session_id}"


def stored_external_session_id(session_id: str, owner: Owner | None, agent_session: Mapping[str, Any] | None) -> str:
    """Return the id by which history providers of the app know a session.

    Returns:
        The id with which its first turn ran: for an older session, the session's own id; else `external_session_id`.
    """
    stored_id = agent_session.get("session_id") if agent_session is not None else None
    return session_id if stored_id == session_id else external_session_id(session_id, owner)


def unknown_session(agent: str, session_id: str) -> NotFoundError:
    """Return the error for a missing session, also for callers who do not own it."""
    return NotFoundError(f"agent {agent!r} has no session {session_id!r}")
