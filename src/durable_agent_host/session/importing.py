"""Imports: what is taken over from an exported document, and what cannot be verified. Pure."""

from dataclasses import replace
from typing import Any, Final, cast

from durable_agent_host.codec.schema import document_faults, shape_error
from durable_agent_host.codec.state import decode_session, encode_session
from durable_agent_host.errors import RequestError, StateError
from durable_agent_host.model.session import Session, without_workflow_state

_ROLES_OF_THE_APP: Final = frozenset({"system", "developer"})


def document_to_import(exported: Any) -> dict[str, Any]:
    """Prepare an exported document for another session.

    Guarantee: pure.

    Args:
        exported: JSON.

    Returns:
        The document without the turns that ran or waited when it was exported: they belong to that host. What a
        workflow keeps is left out, too: it holds objects of Python, and those are read from our own commits alone.

    Raises:
        RequestError: it is no session.
    """
    try:
        session = decode_session(exported)
    except StateError as error:
        raise RequestError(f"the body is no session that can be used: {error}") from None
    if not session.document:
        raise RequestError("the body is empty: send what 'export' gave")
    if faults := document_faults(exported):
        raise RequestError(f"the body is no session that can be used: {shape_error(faults)}")
    agent_session = without_workflow_state(session.agent_session)
    if session.running is None and not session.queue and agent_session is session.agent_session:
        return exported
    return encode_session(
        replace(session, running=None, queue=(), interrupting=None, requests={}, agent_session=agent_session)
    )


def taken_on_trust(session: Session) -> list[str]:
    """List what an imported session makes agent and model do that cannot be verified.

    Guarantee: pure.

    Args:
        session: as it is stored.

    Returns:
        Sentences: instructions to the model in messages, and a conversation that the model's service is to go on with.
    """
    told: list[str] = []
    for number, entry in enumerate(session.entries, 1):
        messages: Any = entry.get("messages")
        told += [
            f"entry {number} has a message of role {one['role']!r}, which the model takes for instructions of the app"
            for one in cast("list[Any]", messages if isinstance(messages, list) else [])
            if isinstance(one, dict) and cast("dict[str, Any]", one).get("role") in _ROLES_OF_THE_APP
        ]
    service = (session.agent_session or {}).get("service_session_id")
    if service:
        told.append(
            f"the session goes on with {service!r} of the model's service, whose conversation may be another one"
        )
    if session.app_state:
        told.append("the session has data of the app, which the app's own operations take as theirs")
    return told
