"""Names of sessions and turns, and their rules."""

import hashlib
import re
from typing import Final

from durable_agent_host.errors import RequestError

ENTITY_PREFIX = "dafx-"
"""Prefix of an agent's entity name. Source: upstream's `AgentSessionId`."""

MAX_SESSION_ID_CHARACTERS = 128
"""Maximum length of a session's name."""
MAX_KEY_CHARACTERS = 255
"""Maximum length of an idempotency key."""

FORBIDDEN_IN_SESSION_IDS = "/\\#?@%"
_FORBIDDEN: Final = re.compile(f"[{re.escape(FORBIDDEN_IN_SESSION_IDS)}\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_NOT_IN_URLS: Final = re.compile("[/\\\\#?%\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_MAX_INSTANCE_CHARACTERS: Final = 1024
"""Maximum length of an instance id. Source: Azure Table storage, the size of a partition key."""


def entity_name(agent_name: str) -> str:
    """Return the name of the entity that holds an agent's sessions.

    Args:
        agent_name: as registered.

    Returns:
        ``dafx-`` and the name. The Durable extension compares entity names in lower case.
    """
    return ENTITY_PREFIX + agent_name


def check_session_id(session_id: str) -> str:
    r"""Refuse a session id that a store or a URL cannot carry.

    Args:
        session_id: the client's id, raw.

    Returns:
        The same id.

    Raises:
        RequestError: it is empty or too long, or has a character of ``/ \ # ? @ %``, or a control
            character. These are the characters that Azure's stores refuse in a key.
    """
    if not session_id.replace(".", "").strip():
        raise RequestError(
            f"the session id {session_id!r} has no letter or digit: "
            "leave it out to begin a new session, or give 1 to 128 characters"
        )
    if len(session_id) > MAX_SESSION_ID_CHARACTERS:
        raise RequestError(
            f"the session id has {len(session_id)} characters, and {MAX_SESSION_ID_CHARACTERS} are allowed"
        )
    if found := _FORBIDDEN.search(session_id):
        raise RequestError(
            f"the session id has the character {found[0]!r}: "
            "use letters, digits, '-', '_', '.', ':' and the like, without / \\ # ? @ % and control characters"
        )
    return session_id


def check_idempotency_key(key: str | None, name: str) -> str | None:
    """Return a client's key for a request.

    Args:
        key: as sent; None for no key.
        name: of the header or argument, for the error.

    Raises:
        RequestError: it is blank or too long, or a header cannot carry it.
    """
    if key is not None and not (key.strip() and key.isprintable() and len(key) <= MAX_KEY_CHARACTERS):
        raise RequestError(f"{name} has {len(key)} characters: use 1 to {MAX_KEY_CHARACTERS} printable ones, not blank")
    return key


def can_be_instance(instance_id: str) -> bool:
    """Return whether an id is valid for an orchestration and a URL of the management API."""
    is_short_enough = bool(instance_id.strip(" .")) and len(instance_id) <= _MAX_INSTANCE_CHARACTERS
    return is_short_enough and _NOT_IN_URLS.search(instance_id) is None


def derived_id(*parts: str) -> str:
    """Return the same 32 hexadecimal digits for the same parts, so that a retry finds the first attempt's turn.

    Args:
        parts: what the id depends on, in order.

    Returns:
        The first 32 digits of a SHA-256 over the parts, each with its length before it.
    """
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(f"{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()[:32]


def turn_log_id(agent: str, session_id: str, turn_id: str) -> str:
    """Return the name of a turn's log.

    Args:
        agent: the agent's registered name.
        session_id: without the agent's name.
        turn_id: the turn; callers of the entity choose their own, so it is unique only in its session.

    Returns:
        32 hexadecimal digits, which every store can use as a name.
    """
    return derived_id("turn-log", agent.casefold(), session_id, turn_id)
