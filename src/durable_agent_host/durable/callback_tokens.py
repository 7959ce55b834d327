"""Tokens of deferred calls: whoever holds one may give the result of that call, and nothing else.

A token names its call and its expiry, and has a keyed hash over both, so a wrong one is refused before anything is
read. The session is in it as part of a hash: a token does not tell whose it is.
"""

import base64
import hmac
import json
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from durable_agent_host.durable.app_secret import AppSecret
from durable_agent_host.model.ids import turn_log_id
from durable_agent_host.model.turn import TurnRequest

CALLBACK_PREFIX: Final = "cb_"

_PURPOSE: Final = ("callback",)


class CallbackToken(NamedTuple):
    """The content of a token.

    Attributes:
        log_id: of the turn, a hash of agent, session and turn.
        turn_id: the turn.
        call_id: the pending call's id.
        expires_at: from when on no result is accepted, UTC.
    """

    log_id: str
    turn_id: str
    call_id: str
    expires_at: datetime


def make_token(secret: AppSecret, request: TurnRequest, call_id: str, expires_at: datetime) -> str:
    """Make the token of a call; blocks until the app's secret is read, once per process."""
    secret.wait()
    log_id = turn_log_id(request.agent, request.session_id, request.turn_id)
    fields = [log_id, request.turn_id, call_id, expires_at.astimezone(UTC).isoformat()]
    content = base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")
    return f"{CALLBACK_PREFIX}{content}.{secret.digest(_PURPOSE, {'content': content})}"


def parse_token(secret: AppSecret, token: str) -> CallbackToken | None:
    """Parse a token of the app, whose secret must be ready; None for anything else."""
    content, _, digest = token.removeprefix(CALLBACK_PREFIX).partition(".")
    expected_digest = secret.digest(_PURPOSE, {"content": content})
    if not hmac.compare_digest(digest.encode("utf-8", "replace"), expected_digest.encode()):
        return None
    fields: Any = json.loads(base64.urlsafe_b64decode(content + "=" * (-len(content) % 4)))
    log_id, turn_id, call_id, expires_at = fields
    return CallbackToken(log_id, turn_id, call_id, datetime.fromisoformat(expires_at))
