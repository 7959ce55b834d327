"""The context of a session as JSON for clients: what the model would receive now. Pure."""

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from agent_framework import CharacterEstimatorTokenizer, annotate_message_groups, included_token_count

from durable_agent_host.model.overlay import StandIn
from durable_agent_host.session.context import RECORD, StoredContext, context_messages, name_of_stand_in, place_of_name

_TOKENIZER: Final = CharacterEstimatorTokenizer()


def context_view(
    agent: str,
    session_id: str,
    context: StoredContext,
    *,
    made_by: str | None,
    between: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """Return the context of a conversation. Guarantee: pure.

    Args:
        agent: the agent's registered name.
        session_id: without the agent's name.
        context: the context that was read.
        made_by: the agent's compaction strategies; None when it compacts nothing.
        between: called before each message, so that other work can run.

    Returns:
        The view. A message of the record has its ``turn_id``; a message that replaces others has ``stands_for``: the
        first and last turn, and the number of messages.

    Raises:
        CorruptStateError: an entry cannot be read.
    """
    session, overlay, entries = context
    messages = context_messages(entries, overlay, count=session.message_count, between=between)
    names = [cast("str", message.additional_properties.pop(RECORD)) for message in messages]
    pieces = overlay.pieces if overlay is not None else ()
    stand_ins = {name_of_stand_in(one.name): one for one in pieces if isinstance(one, StandIn)}
    annotate_message_groups(messages, tokenizer=_TOKENIZER)
    shown: list[dict[str, Any]] = []
    for name in names:
        between()
        place = place_of_name(name)
        if place is None:
            shown.append(_stand_in_view(stand_ins[name]))
            continue
        entry = entries[place.entry]
        message = cast("list[Mapping[str, Any]]", entry["messages"])[place.message]
        shown.append({"createdAt": entry.get("createdAt"), **message, "turn_id": entry.get("correlationId")})
    return {
        "agent": agent,
        "session_id": session_id,
        "thread_id": session_id,
        "message_count": session.message_count,
        "context": {
            "made_by": made_by,
            "is_whole": overlay is None,
            "kept_by_service": bool((session.agent_session or {}).get("service_session_id")),
            "estimated_tokens": included_token_count(messages),
            "messages": shown,
        },
    }


def _stand_in_view(stand_in: StandIn) -> dict[str, Any]:
    stands_for = {
        "first_turn_id": stand_in.first_turn_id,
        "last_turn_id": stand_in.last_turn_id,
        "messages": stand_in.count,
    }
    return {**stand_in.message, "stands_for": stands_for}
