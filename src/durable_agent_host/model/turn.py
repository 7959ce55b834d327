"""A turn: its request and its outcome."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from durable_agent_host.model.budget import BudgetUsage
from durable_agent_host.model.ids import turn_log_id
from durable_agent_host.model.principal import Owner
from durable_agent_host.model.segment_refs import SealPlan


@dataclass(frozen=True)
class ResponseLimits:
    """Limits of a turn; each is a setting. A turn that exceeds one fails, and names the setting.

    Attributes:
        answer_seconds: the longest time from a model call to the end of its answer, even while data arrives.
        max_model_calls: the most model calls of a turn.
        max_calls_at_once: the most tool calls of an answer.
        max_tool_result_bytes: the largest result of a tool call; of a larger one, the model is told so instead.
    """

    answer_seconds: float = 1200.0
    max_model_calls: int = 100
    max_calls_at_once: int = 128
    max_tool_result_bytes: int = 32 * 1024 * 1024


Policy = Literal["queue", "reject", "interrupt", "steer"]
EndStatus = Literal["completed", "failed", "rejected", "cancelled"]
TurnStatus = Literal[EndStatus, "suspended", "postponed"]


@dataclass(frozen=True)
class TurnRequest:
    """The request of a turn.

    Attributes:
        agent: the agent's registered name.
        session_id: the session's id, without the agent's name.
        turn_id: also the id of the orchestration, and the correlation id in the stored entries.
        message: the user's text; for a message with other contents, its text part, which may be empty.
        role: who speaks.
        response_format: a JSON schema that the answer must match, or None for free text.
        enable_tool_calls: False offers the model no tools and runs none.
        policy: what happens when another turn of the session is running.
        created_at: when the request arrived, UTC, ISO-8601.
        request_hash: SHA-256 of the client's request; equal for a retry with the same key.
        options: further options for the agent: those of a client that the app allows, or an orchestration's.
        orchestration_id: the calling orchestration, or None for a client.
        principal: on whose behalf the turn runs, or None when nobody has been identified.
        tenant: the principal's, or None without one.
        owner: the required owner of the session: ``principal`` and ``tenant``; None when it is the caller.
        traceparent: the trace that the turn belongs to, a valid W3C header value, or None.
        stored: the name of the blob, in the turn's own namespace, with the parts too large to travel; or None.
        raw: the name of the blob with the unredacted request, for this turn only; empty when redaction changed
            nothing; None when the app redacts nothing.
        contents: the message's contents as stored, including texts; empty for a plain text.
        client_tools: tools that the client runs: ``name``, ``description``, ``parameters`` of each.
        resumes: whether somebody has the turn resumed after it has failed, whatever the reason was.
    """

    agent: str
    session_id: str
    turn_id: str
    message: str
    role: str = "user"
    response_format: Mapping[str, Any] | None = None
    enable_tool_calls: bool = True
    policy: Policy = "queue"
    created_at: str = ""
    request_hash: str = ""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    orchestration_id: str | None = None
    principal: str | None = None
    tenant: str | None = None
    owner: Mapping[str, str] | None = None
    traceparent: str | None = None
    stored: str | None = None
    raw: str | None = None
    contents: tuple[Mapping[str, Any], ...] = ()
    client_tools: tuple[Mapping[str, Any], ...] = ()
    resumes: bool = False

    @property
    def log_id(self) -> str:
        """The turn's log, and the namespace of what only the turn refers to, which is deleted with the log."""
        return turn_log_id(self.agent, self.session_id, self.turn_id)

    @property
    def session_owner(self) -> Owner | None:
        """The session's required or future owner; None when the turn runs for nobody."""
        if self.owner is not None:
            return Owner(self.owner["principal"], self.owner.get("tenant", ""))
        return Owner(self.principal, self.tenant or "") if self.principal else None


@dataclass(frozen=True)
class TurnStats:
    """Sizes and times of a turn's output.

    Attributes:
        chunks_streamed: updates from the model and the tools.
        bytes_streamed: UTF-8 bytes of the compact JSON of those updates' contents.
        contents_stored: contents of the folded response.
        bytes_stored: UTF-8 bytes of the compact JSON of the turn's two entries, before older turns are compressed.
        agent_milliseconds: time inside the agent: the model's and the tools'.
        calls_refused: model calls that the service rejected because it had lost a continuation or a container, and
            that were repeated from the stored transcript.
    """

    chunks_streamed: int = 0
    bytes_streamed: int = 0
    contents_stored: int = 0
    bytes_stored: int = 0
    agent_milliseconds: float = 0.0
    calls_refused: int = 0


@dataclass(frozen=True)
class TurnOutcome:
    """How a turn ended.

    Attributes:
        turn_id: the turn.
        status: ``completed`` has entries, ``cancelled`` has entries and an error, the others have an error; ``failed``
            may have entries, too. ``suspended`` and ``postponed`` are no ends: the one has pending calls, the error of
            the other says after how many seconds the turn continues.
        text: the answer's text.
        messages: of the answer, in order, with a blank line between two in ``text``: ``characters`` of each, and
            ``author``, ``citations``, ``files`` where there are any; empty for one message without these.
        finish_reason: how the answer ended, see `durable_agent_host.model.ending.AnswerEnd`; None unless completed.
        refusal: the service's words and category of a refused answer; None for others.
        entries: the request and response entries to append, as stored; empty for a turn that has failed before anything
            happened outside of it, and for one that did not run.
        agent_session: the framework's session after the turn, serialized.
        usage: token counts by the framework's names.
        error: ``type`` and ``message`` of the error that ended the turn.
        message_count: entries of the conversation after the turn; None for a turn that adds none, before its commit.
        stats: sizes and times of the turn.
        request_hash: of the request, for the receipt.
        ended_at: UTC, ISO-8601.
        pending: the calls that wait for a person: ``call_id``, ``name``, ``arguments``, ``reason``.
        model_info: ``model`` and ``service_tier`` of the last model call, as far as the provider reports them.
        sealing: what the turn's end moves out of the session's head, if anything.
        text_at: where the text of an answer is that is too long to travel, see `segments.turn_data_storage`;
            empty when ``text`` has it.
        response: for a calling orchestration: the response entry, or its blob (``namespace``, ``name``).
        budget_usage: the turn's spending, when it had a budget.
        redacts: whether the agent has redaction, so that what only the turn refers to is deleted at its end.
        redacted: whether something of the conversation was redacted.
        is_structured: whether the text is JSON because the agent's own options ask for it.
        steered_by: the turns whose messages this one's agent got while it ran: by id, the hashes of their requests.
        joined_turn_id: the running turn that got this one's message, and whose end this is; empty for other turns.
        overlay: the session's overlay from now on, empty for none; None to keep the previous one.
        attempt_metrics: figures for observers of the attempt with this outcome; None without one. ``attempt`` (its
            number), ``began_at``, ``ended_at``, the counts ``model_calls``, ``tool_calls`` (of the turn),
            ``replayed_model_calls``, ``replayed_tool_calls``, ``in_doubt``, ``models`` (token counts of the turn by
            model) and ``new_usage`` (token counts of what was not replayed).
    """

    turn_id: str
    status: TurnStatus
    text: str = ""
    messages: tuple[Mapping[str, Any], ...] = ()
    finish_reason: str | None = None
    refusal: Mapping[str, str] | None = None
    entries: tuple[Mapping[str, Any], ...] = ()
    agent_session: Mapping[str, Any] | None = None
    usage: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    message_count: int | None = None
    stats: TurnStats = TurnStats()
    request_hash: str = ""
    ended_at: str = ""
    pending: tuple[Mapping[str, Any], ...] = ()
    model_info: Mapping[str, str] | None = None
    sealing: SealPlan | None = None
    text_at: str = ""
    response: Mapping[str, Any] | None = None
    overlay: Mapping[str, Any] | None = None
    budget_usage: BudgetUsage | None = None
    attempt_metrics: Mapping[str, Any] | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the turn has ended; otherwise only the attempt has."""
        return self.status not in {"suspended", "postponed"}

    redacts: bool = False
    redacted: bool = False
    is_structured: bool = False
    steered_by: Mapping[str, str] = field(default_factory=dict[str, str])
    joined_turn_id: str = ""

    @property
    def adds_entries(self) -> bool:
        """Whether the turn adds to the conversation, also when its entries are sealed already; not after its commit."""
        return bool(self.entries) or self.message_count is not None

    @property
    def plain_text(self) -> str:
        """The text for a caller who gets nothing else: the reason where a refused answer has no words."""
        return self.text or (self.refusal or {}).get("message", "")


@dataclass(frozen=True)
class Turn:
    """The current state of a turn.

    Attributes:
        request: what was asked.
        outcome: how it ended, or None while it runs or waits.
        pending: the calls that wait for a person: ``call_id``, ``name``, ``arguments``, ``reason``.
        replies: people's answers, by call id: ``approved``, ``reason``, ``arguments``.
        postponement: until when it waits without a process (``until``, ``reason``); None when it does not.
    """

    request: TurnRequest
    outcome: TurnOutcome | None
    pending: tuple[Mapping[str, Any], ...] = ()
    replies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    postponement: Mapping[str, Any] | None = None
