"""The JSON of routes: each shape once.

Bodies of requests are validated by them, handlers return them, and the OpenAPI document is made of them.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NotRequired, Required, TypedDict

from pydantic import ConfigDict, Field, SkipValidation, with_config

from durable_agent_host.codec.wire_types import FailureWire, SpentWire, StatsWire
from durable_agent_host.model.ending import AnswerEndWire, RefusalWire, VisibleStatus
from durable_agent_host.model.pending_call import PendingCallWire, PendingDetailsWire, PendingKind, PrincipalWire
from durable_agent_host.model.turn import Policy
from durable_agent_host.turn.turn_events import (
    CitationWire,
    ProblemWire,
    ResponseMessageWire,
    TurnIdentityWire,
    TurnQueuedWire,
    UsageWire,
)

_Text = Annotated[str, Field(min_length=1)]
_EXACT: Final = ConfigDict(extra="forbid", strict=True)


class TurnUrlsWire(TypedDict):
    """Where a turn and its session are."""

    session_url: str
    turn_url: str
    events_url: str


class TurnNamesWire(TurnIdentityWire, TurnUrlsWire):
    """A turn, and where it is."""


class AcceptedTurnWire(TurnNamesWire):
    """A turn that runs; `queued_turn_id` is the turn that runs if a message to the running turn comes too late."""

    status: Literal["accepted"]
    message: str
    queued_turn_id: NotRequired[str]


class WaitingTurnWire(TurnNamesWire):
    """A turn that waits for the answers to its pending calls."""

    message: str
    status: Literal["waiting"]
    pending_calls: Sequence[PendingCallWire]


class QueuedTurnWire(TurnNamesWire, TurnQueuedWire):
    """A turn behind a turn that waits, with that turn's pending calls for a caller who may read it."""

    message: str


class ReplyWire(TypedDict, total=False):
    """The answer to a pending call; `truncated` stands for what was too long to travel."""

    approved: bool
    reason: str | None
    arguments: Mapping[str, Any] | None
    result: Any
    error: Any
    expired: bool
    answered_by: PrincipalWire
    answered_at: str
    truncated: bool
    redacted: bool


class CallReplyWire(ReplyWire):
    """The answer to one of a turn's pending calls."""

    call_id: str


class PostponedWire(TypedDict):
    """A turn waits until then, and continues by itself."""

    until: str
    reason: str


class TurnDetailsWire(TypedDict, total=False):
    """What was said in a turn, as far as it has come."""

    message: str
    created_at: str
    pending_calls: Sequence[PendingCallWire]
    postponed: PostponedWire
    options: Mapping[str, Any]
    asked_by: PrincipalWire
    finish_reason: str | None
    refusal: RefusalWire
    response: str | None
    messages: Sequence[ResponseMessageWire]
    citations: Sequence[CitationWire]
    value: Any
    error: FailureWire | None
    usage: UsageWire | None
    message_count: int | None
    ended_at: str
    stats: StatsWire
    model: str
    service_tier: str
    redacted: bool
    joined_turn_id: str
    spent: SpentWire


class TurnStateWire(TurnIdentityWire, TurnDetailsWire):
    """A turn's current state. A caller who may not read the turn gets its names and its status alone."""

    agent: str
    status: Literal["running", "waiting"] | VisibleStatus


class TurnWire(TurnStateWire):
    """A turn's current state, with the answers to its pending calls."""

    answers: NotRequired[Sequence[CallReplyWire]]


class CancellingTurnWire(TurnNamesWire):
    """A turn that is being cancelled."""

    status: Literal["cancelling"]


class ResumingTurnWire(TurnNamesWire):
    """A failed turn that goes on."""

    status: Literal["resuming"]


class CancelledTurnWire(TurnWire, TurnUrlsWire):
    """A turn that was cancelled before."""


class AnsweredTurnWire(TurnStateWire, TurnUrlsWire):
    """A turn that was sent answers: those that it has received."""

    answers: Sequence[CallReplyWire]


class AnsweredRunWire(TypedDict):
    """A workflow's run that was sent answers."""

    workflow: str
    run_id: str
    answers: Sequence[CallReplyWire]


class CallbackWire(TypedDict):
    """What became of the result of a deferred call."""

    call_id: str
    status: Literal["answered", "accepted", "waiting"]


class ShownCallWire(PendingDetailsWire):
    """A pending call. A caller who may answer it and not read what it belongs to gets neither name nor arguments."""

    call_id: str
    kind: PendingKind
    created_at: str
    expires_at: str | None
    name: NotRequired[str]
    arguments: NotRequired[Mapping[str, Any] | None]
    path: NotRequired[str]


class PendingTurnCallWire(ShownCallWire, TurnIdentityWire):
    """A pending call and its turn."""

    agent: str
    turn_url: str
    answer_url: str


class PendingRunCallWire(ShownCallWire):
    """A question of a workflow's run."""

    workflow: str
    run_id: str
    answer_url: str


class PendingPageWire(TypedDict):
    """A page of pending calls; it may be short."""

    pending_calls: Sequence[PendingTurnCallWire | PendingRunCallWire]
    cursor: str | None


class AgentWire(TypedDict):
    """An agent that is reachable by HTTP."""

    name: str
    description: str | None
    run_url: str


class AgentsWire(TypedDict):
    """The agents that are reachable by HTTP."""

    agents: Sequence[AgentWire]


class HostedAgentWire(TypedDict):
    """An agent of the app, and how it is reached."""

    name: str
    type: str
    http_endpoint_enabled: bool
    mcp_tool_enabled: bool


class CheckWire(TypedDict):
    """Whether a store can be written; the reason names its error."""

    ok: bool
    reason: NotRequired[str]


class HealthChecksWire(TypedDict):
    """The agents and the stores of an app."""

    agents: Sequence[HostedAgentWire]
    agent_count: int
    checks: Mapping[str, CheckWire]


class HealthWire(HealthChecksWire):
    """All stores can be written."""

    status: Literal["healthy"]


class HealthProblemWire(ProblemWire, HealthChecksWire):
    """A store cannot be written."""


class ClientToolWire(TypedDict):
    """A tool that the client runs; the parameters are a JSON schema."""

    name: str
    description: NotRequired[str]
    parameters: NotRequired[Mapping[str, Any]]


@with_config(ConfigDict(coerce_numbers_to_str=True))
class RunRequestWire(TypedDict, total=False):
    """The body of ``run``; `role` is ``user``, and `response_format` a JSON schema."""

    message: Required[Annotated[str | Sequence[Mapping[str, Any]], SkipValidation]]
    session_id: str | None
    thread_id: str | None
    role: Literal["user"] | None
    response_format: Annotated[Mapping[str, Any], Field(min_length=1)] | None
    options: Annotated[Mapping[str, Any] | None, SkipValidation]
    enable_tool_calls: bool | None
    wait_for_response: bool | None
    policy: Policy
    client_tools: Annotated[Sequence[ClientToolWire] | None, SkipValidation]


@with_config(extra="forbid")
class ForkRequestWire(TypedDict, total=False):
    """The body of ``fork``; `before` ends the copy before the turn `at_turn`."""

    session_id: _Text | None
    at_turn: _Text | None
    before: bool | None


@with_config(_EXACT)
class DecisionWire(TypedDict):
    """A decision on a pending call."""

    call_id: _Text
    approved: bool
    reason: NotRequired[str | None]
    arguments: NotRequired[Mapping[str, Any] | None]


@with_config(_EXACT)
class ResultWire(TypedDict):
    """The result of a pending call."""

    call_id: _Text
    result: Any


@with_config(_EXACT)
class ErrorWire(TypedDict):
    """Why a pending call has no result."""

    call_id: _Text
    error: _Text


@with_config(_EXACT)
class CallbackResultWire(TypedDict):
    """The result of a deferred call, whose token names it."""

    call_id: NotRequired[str]
    result: Any


@with_config(_EXACT)
class CallbackErrorWire(TypedDict):
    """Why a deferred call has no result."""

    call_id: NotRequired[str]
    error: _Text


class ProgressNoteWire(TypedDict):
    """How far a deferred call is."""

    text: str
    fraction: NotRequired[Annotated[float, Field(ge=0, le=1)] | None]


@with_config(_EXACT)
class ProgressRequestWire(TypedDict):
    """A note on a deferred call."""

    call_id: NotRequired[str]
    progress: ProgressNoteWire


SessionStatus = Literal["completed", "failed", "cancelled", "running", "waiting", "queued", "empty", "unreadable"]
"""How the last turn of a session ended, or what the current one does."""


class SessionIdentityWire(TypedDict):
    """Names a session."""

    agent: str
    session_id: str


class SessionDetailsWire(TypedDict, total=False):
    """Details of a session, as far as it can be read."""

    status: SessionStatus
    message_count: int
    running_turn_id: str | None
    queued_turns: int
    spent: SpentWire


class ListedSessionWire(SessionDetailsWire):
    """A session of a list, with its details where they were requested."""

    session_id: str
    last_used_at: str
    session_url: str


class SessionPageWire(TypedDict):
    """A page of an agent's sessions, newest first."""

    agent: str
    sessions: Sequence[ListedSessionWire]
    cursor: str | None


class ConversationMessageWire(TypedDict, total=False):
    """A message as it is stored, in upstream's format; it may have members of later versions."""

    role: str
    contents: Sequence[Mapping[str, Any]]
    authorName: str | None
    createdAt: str | None
    extensionData: Mapping[str, Any] | None
    turn_id: str | None
    redacted: bool


class TurnEndWire(AnswerEndWire):
    """How a turn ended."""

    status: VisibleStatus


class EndedTurnWire(TurnEndWire):
    """How a turn of the conversation ended."""

    turn_id: str
    ended_at: str
    error: FailureWire | None
    response_id: str | None
    stats: StatsWire | None
    spent: NotRequired[SpentWire]
    joined_turn_id: NotRequired[str]


class OmissionWire(TypedDict):
    """A text that does not fit on a page."""

    turn_id: str
    path: str
    size: int


class RepairChangeWire(TypedDict):
    """A problem of a conversation, and its repair."""

    place: str
    problem: str
    repair: str


class RunningTurnWire(TypedDict):
    """The request of a turn that has not ended, which is not yet among the messages."""

    turn_id: str
    message: str
    created_at: str
    status: Literal["running", "waiting"]


class ConversationWire(SessionIdentityWire):
    """A page of a conversation as it is stored, oldest message first."""

    thread_id: str
    message_count: int
    messages: Sequence[ConversationMessageWire]
    previous: str | None
    running_turn_id: str | None
    running_turn: NotRequired[RunningTurnWire]
    queued_turn_ids: Sequence[str]
    turns: Sequence[EndedTurnWire]
    spent: NotRequired[SpentWire]
    kept_by: NotRequired[Sequence[str]]
    state: NotRequired[Mapping[str, Any]]
    left_out: NotRequired[Sequence[OmissionWire]]
    problems: NotRequired[Sequence[RepairChangeWire]]


class ImportedSessionWire(SessionIdentityWire):
    """A session that was imported."""

    message_count: int


class VerifiedSessionWire(SessionIdentityWire):
    """What cannot be read or does not belong together, and what a repair would change."""

    problems: Sequence[RepairChangeWire]


class RepairedSessionWire(SessionIdentityWire):
    """What was repaired, and which session has the original."""

    changes: Sequence[RepairChangeWire]
    original_session_id: str | None


class ForkedSessionWire(SessionIdentityWire):
    """A session that begins with a copy of another one's conversation."""

    forked_from: str
    message_count: int
    session_url: str


class ErasedWire(TypedDict):
    """How much was erased; pieces are blobs."""

    turns: int
    orchestrations: int
    pieces: int
    bytes: int


class DeletedSessionWire(SessionIdentityWire):
    """What was erased, once it is, and by when it is in no file; `kept_by` names what keeps a copy."""

    status: Literal["deleting", "deleted"]
    erased: NotRequired[ErasedWire]
    erased_from_files_by: NotRequired[str]
    kept_by: NotRequired[Sequence[str]]


class FileWire(TypedDict):
    """A file of a session."""

    id: str
    name: str | None
    media_type: str | None
    size: int | None
    role: str
    turn_id: str | None
    file_url: str


class FilesWire(SessionIdentityWire):
    """Files of a session, newest first."""

    files: Sequence[FileWire]
