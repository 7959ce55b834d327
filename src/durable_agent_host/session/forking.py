"""Forks: a new session that begins with another session's conversation, whole or up to a turn."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, cast

from durable_agent_host.errors import NotFoundError
from durable_agent_host.model.session import Session, without_workflow_state


def fork_session_head(session: Session) -> Session:
    """Return the part of a session's head that a fork gets, besides the conversation and the framework's session.

    Receipts stay with the original, which ran the turns.

    Returns:
        A session in which no turn runs or waits.
    """
    return replace(session, running=None, queue=(), interrupting=None, requests={}, receipts=(), rejected_turn_ids=())


def fork_agent_session(
    agent_session: Mapping[str, Any] | None, session_id: str, *, lasting_state: Collection[str] | None
) -> dict[str, Any] | None:
    """Return the framework's session of a fork.

    The fork continues from the transcript: a conversation kept by the model's service or a workflow is linear and
    includes the last turn, and two sessions must not add to the same one.
    """
    agent_session = without_workflow_state(agent_session)
    if agent_session is None:
        return None
    state = cast("dict[str, Any]", agent_session.get("state") or {})
    forked_state = {name: value for name, value in state.items() if lasting_state is None or name in lasting_state}
    return {**agent_session, "session_id": session_id, "service_session_id": None, "state": forked_state}


def turn_not_found(turn_id: str) -> NotFoundError:
    """Return the error that a conversation has no such turn."""
    return NotFoundError(
        f"the conversation has nothing of turn {turn_id!r}: name a turn that was answered, or leave at_turn out"
    )
