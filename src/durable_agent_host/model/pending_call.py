"""A pending call: a call of a turn whose result comes from outside the attempt that made it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, NotRequired, TypedDict, cast

PendingKind = Literal["approval", "in_doubt", "client_tool", "callback", "input", "budget"]
"""Who is asked for what.

``approval``, ``in_doubt`` and ``budget`` ask a person for a decision: whether a tool may run, whether it is run again,
whether a turn may use more. ``client_tool`` asks the caller, ``callback`` a job elsewhere, for a tool's result;
``input`` is a question of a workflow.
"""

DECISIONS: Final[frozenset[str]] = frozenset({"approval", "in_doubt", "budget"})
"""The kinds whose answer is ``approved``; the answer of the others is a ``result`` or an ``error``.

Only an ``approval`` takes other ``arguments``: a call in doubt has run with its own, under its idempotency key.
"""


class ProgressWire(TypedDict):
    """How far a deferred call is, for people."""

    text: str
    fraction: float | None
    at: str


class PrincipalWire(TypedDict):
    """Somebody whom the app has identified."""

    principal: str
    tenant: NotRequired[str | None]


class PendingDetailsWire(TypedDict, total=False):
    """What only some pending calls have."""

    reason: str | None
    schema: Mapping[str, Any] | None
    approved_by: str
    changed_by: PrincipalWire
    progress: ProgressWire | None
    truncated: bool
    redacted: bool


class PendingCallWire(PendingDetailsWire):
    """A call that waits for an answer; where it is too long, `truncated` stands for its largest members.

    `redacted`: some members are not what they were.
    """

    call_id: str
    kind: PendingKind
    name: str
    arguments: Mapping[str, Any] | None
    path: str
    created_at: str
    expires_at: str


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call that waits for its answer.

    Attributes:
        call_id: under which it is answered; unique in its turn.
        kind: what it waits for.
        name: the tool's name, or that of what asks.
        arguments: as JSON.
        path: the text of the call's path.
        reason: why it waits, for people.
        schema: a JSON schema of the result, or None for any.
        approved_by: who must approve, or None for everyone whom the app lets in.
        changed_by: who has changed the arguments, or None.
        created_at: when it was asked, UTC, ISO-8601.
        expires_at: from when on no answer is accepted, UTC, ISO-8601; empty for a question of a workflow's run.
    """

    call_id: str
    kind: PendingKind
    name: str
    arguments: Mapping[str, Any]
    path: str
    reason: str | None = None
    schema: Mapping[str, Any] | None = None
    approved_by: str | None = None
    changed_by: PrincipalWire | None = None
    created_at: str = ""
    expires_at: str = ""

    def to_json(self) -> PendingCallWire:
        """Return the call as JSON, as clients and the turn's orchestration have it."""
        members = {name: value for name, value in asdict(self).items() if value is not None}
        return cast("PendingCallWire", members)


def is_answer_to(kind: str, answer: Mapping[str, Any]) -> bool:
    """Return whether an answer has the form that a kind of pending call needs."""
    has_form = ("approved" in answer) == (kind in DECISIONS)
    return has_form and (kind == "approval" or answer.get("arguments") is None)
