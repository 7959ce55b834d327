"""A call of an agent that is a tool: its arguments, and the turn that it begins."""

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote, unquote

from pydantic import AliasChoices, BaseModel, Field, TypeAdapter
from pydantic.alias_generators import to_camel

from durable_agent_host.agent_client import AgentClient
from durable_agent_host.errors import NotFoundError
from durable_agent_host.model.ids import check_idempotency_key
from durable_agent_host.turn.turn_wire import validate


class ToolArguments(BaseModel, extra="forbid", alias_generator=to_camel, coerce_numbers_to_str=True, defer_build=True):
    """The arguments of the tool: upstream's, and the key."""

    query: str = Field(description="The query to send to the agent.", pattern=r"\S")
    session_id: str = Field(
        "",
        validation_alias=AliasChoices("sessionId", "threadId"),
        description="Optional session identifier for conversation continuity: the one that a result names.",
    )
    idempotency_key: str = Field(
        "",
        description="Optional key of this call: a call that is repeated with the same key and query gets the first "
        "one's answer.",
    )


def waiting_text(turn: Iterable[str]) -> str:
    """Return what is to be done when a turn waits for a person whom the client cannot ask."""
    url = "/api/agents/{}/sessions/{}/turns/{}".format(*map(quote, turn))
    return (
        "the turn waits for a person's answer: GET /api/pending shows where to give it; then call again with the same "
        f"idempotencyKey, or GET {url} for the result"
    )


def join_parts(*parts: str) -> str:
    """Make an id, or a URI's path."""
    return "/".join(quote(part, safe="") for part in parts)


def read_parts(text: Any, count: int) -> Sequence[str]:
    """Read what an id or a URI names.

    Raises:
        NotFoundError: it is none of this host's.
    """
    parts = [unquote(part) for part in str(text).split("/")]
    if len(parts) != count:
        raise NotFoundError(f"there is no {str(text)[:200]!r} here")
    return parts


async def begin_turn(api: AgentClient, agent: str, values: Any) -> Sequence[str]:
    """Begin the turn of a call, unless its key has begun it; return the names of agent, session and turn.

    Raises:
        RequestError: an argument is unknown or not valid.
        AgentClientError: the turn is refused; the turn of the key has failed.
    """
    arguments = validate(TypeAdapter(ToolArguments), values)
    session_id = arguments.session_id
    if session_id.startswith("@") and session_id.count("@") > 1:  # upstream's form
        session_id = session_id.split("@", 2)[2]
    key = check_idempotency_key(arguments.idempotency_key or None, "idempotencyKey")
    turn = await api.run(agent, arguments.query, session_id=session_id or None, idempotency_key=key, wait=False)
    return agent, turn.session_id, turn.turn_id
