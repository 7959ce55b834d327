"""Forks: a new session with a copy of another session's conversation. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, cast

from durable_agent_host.errors import NotFoundError
from durable_agent_host.model.session import Session, without_workflow_state


def fork_session(
    session: Session, session_id: str, *, at_turn: str | None = None, lasting_state: Collection[str] = ()
) -> Session:
    """Copy a conversation up to and including a turn.

    The copy goes on from the transcript: what the model's service or a workflow keeps is one line of a conversation,
    which knows the last turn, and two sessions must not add to the same one. Receipts stay with the original,
    whose turns they are. What the app keeps with a session is that of the last turn, and goes into a copy of the whole
    conversation alone.

    Guarantee: pure; the session given is not changed, and the copy shares its entries.

    Args:
        session: the original.
        session_id: of the copy.
        at_turn: the last turn of the copy; None for the whole conversation.
        lasting_state: names in the framework's session state that hold for every turn. The rest of the state is that
            of the last turn, and goes into a copy of the whole conversation alone.

    Returns:
        The copy, in which no turn runs or waits.

    Raises:
        NotFoundError: the conversation has nothing of that turn.
    """
    count = len(session.entries)
    if at_turn is not None:
        places = [n for n, entry in enumerate(session.entries, 1) if entry.get("correlationId") == at_turn]
        if not places:
            raise NotFoundError(
                f"the conversation has nothing of turn {at_turn!r}: name a turn that was answered, or leave at_turn out"
            )
        count = places[-1]
    return replace(
        session,
        entries=session.entries[:count],
        agent_session=_agent_session(
            without_workflow_state(session.agent_session),
            session_id,
            None if count == len(session.entries) else lasting_state,
        ),
        running=None,
        queue=(),
        interrupting=None,
        requests={},
        receipts=(),
        refused=(),
        app_state=session.app_state if count == len(session.entries) else {},
    )


def _agent_session(
    stored: Mapping[str, Any] | None, session_id: str, kept: Collection[str] | None
) -> dict[str, Any] | None:
    if stored is None:
        return None
    state = cast("dict[str, Any]", stored.get("state") or {})
    copied = {name: value for name, value in state.items() if kept is None or name in kept}
    return {**stored, "session_id": session_id, "service_session_id": None, "state": copied}
