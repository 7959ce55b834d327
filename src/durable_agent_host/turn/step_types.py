"""The steps of a turn, as clients see them: each kind once. A time is UTC, or None where the log has none."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, TypedDict

from durable_agent_host.codec.wire_types import SpentWire
from durable_agent_host.model.ending import RefusalWire, VisibleStatus
from durable_agent_host.model.journal_entry import FeatureEntry, JournaledOutcome
from durable_agent_host.model.turn import EndStatus
from durable_agent_host.turn.turn_events import MessageFileWire, UsageWire


class WaitingCallWire(TypedDict):
    """A call that a turn waited for, and its answer, or None while there is none."""

    call_id: str
    name: str | None
    reason: str | None
    arguments: Any
    answer: Mapping[str, Any] | None


class WaitStepWire(TypedDict):
    """The turn waits, for the `reason`.

    `queue`: from the request until the first attempt. `person`: for answers to its `calls`. `retry`: before an
    attempt, for a `cause`.
    """

    kind: Literal["wait"]
    reason: Literal["queue", "person", "retry"]
    calls: NotRequired[Sequence[WaitingCallWire]]
    cause: NotRequired[str]
    wait_seconds: NotRequired[float]
    began_at: str | None
    ended_at: str | None


class AttemptStepWire(TypedDict):
    """An attempt; `crashed` when no end was written: its process died, or another one took over.

    What it found in the journal is replayed and not run again. `suspended` waits for answers.
    """

    kind: Literal["attempt"]
    number: int
    ended: EndStatus | Literal["suspended", "postponed", "running", "crashed"] | None
    found_model_calls: int
    found_tool_calls: int
    began_at: str | None
    ended_at: str | None


class ModelResponseWire(TypedDict, total=False):
    """What a model's service said of its answer; the cost is absent without prices."""

    model: str | None
    usage: UsageWire | None
    finish_reason: str | None
    refusal: RefusalWire
    context_edits: Sequence[Mapping[str, Any]]
    cost: float


class ModelCallStepWire(ModelResponseWire):
    """A model call, from when its request was sent; the outcome is null while it is open.

    `lost`: it was cut off, and is made again unless the turn has ended. `cancelled`: with the turn, which keeps its
    output. `failed`, with the `reason`: the turn fails. `rejected`: why its answer does not fit `response_format`.
    `background`: the service continued it. `client`: the fallback that answered. `context_edits`: what the service left
    out of the request. The `cost` is at the current prices.
    """

    kind: Literal["model_call"]
    position: int
    attempt: int
    outcome: Literal["completed", "lost", "cancelled", "failed"] | None
    characters: int
    background: NotRequired[bool]
    reason: NotRequired[str]
    rejected: NotRequired[str]
    client: NotRequired[str]
    began_at: str | None
    ended_at: str | None


class ToolAttemptWire(TypedDict):
    """An attempt in which a tool was started."""

    attempt: int
    at: str | None


class FrameWire(TypedDict):
    """A line of the app's code that was running."""

    file: NotRequired[str]
    line: NotRequired[int]
    function: NotRequired[str]


class RaisedWire(FrameWire):
    """What a tool raised, and where in the app; of several frames all, the innermost last."""

    type: str
    frames: NotRequired[Sequence[FrameWire]]


class ToolCallStepWire(TypedDict):
    """A tool call, by the model call at `position`, or of an agent within the agent at `path`.

    `runs_in` is `host`, or `service` for tools of the model's service. The outcome is that of `tool.completed`,
    `cancelled` with the turn, `deferred` while its result is to come later, null while it runs. The result has at most
    4,000 characters. `in_doubt`: it was running when an attempt crashed. `raised`: the type of the exception, and file,
    line and function of the app, with the `frames` if there are several, the innermost last.
    """

    kind: Literal["tool_call"]
    call_id: str
    name: str
    arguments: Any
    position: NotRequired[int]
    path: NotRequired[str]
    runs_in: Literal["host", "service"]
    attempts: list[ToolAttemptWire]
    outcome: JournaledOutcome | Literal["cancelled"] | None
    result: str | None
    result_characters: NotRequired[int]
    in_doubt: bool
    files: NotRequired[Sequence[MessageFileWire]]
    approval_request_id: NotRequired[str]
    raised: NotRequired[RaisedWire]
    began_at: str | None
    ended_at: str | None


class StrategyCallStepWire(ModelResponseWire):
    """A model call of compaction, before the model call at `position`."""

    kind: Literal["strategy_call"]
    position: int
    attempt: int
    at: str | None
    began_at: str | None
    ended_at: str | None


class MessageStepWire(TypedDict):
    """A message to the running turn, which the model call at `position` is about to get."""

    kind: Literal["message"]
    position: int
    attempt: int
    at: str | None
    turn_id: str
    message: str
    created_at: str


class FallbackStepWire(TypedDict):
    """Another client answers from here on: its class, and why."""

    kind: Literal["fallback"]
    position: int
    attempt: int
    client: str
    reason: str | None
    at: str | None


class InnerCallStepWire(ModelResponseWire):
    """A model call of an agent within the agent; `reason` says why it failed, `wait_seconds` when it is made again."""

    kind: Literal["inner_call"]
    path: str
    attempt: int
    at: str | None
    reason: NotRequired[str]
    wait_seconds: NotRequired[float]


class RetryStepWire(TypedDict):
    """A model call has failed, and is made again; `repeats_run` when the agent is run again for it, from the journal.

    It has `usage` where the service has counted tokens all the same.
    """

    kind: Literal["retry"]
    position: int | None
    attempt: int
    reason: str
    wait_seconds: float
    repeats_run: bool
    began_at: str | None
    ended_at: str | None
    at: str | None
    usage: NotRequired[UsageWire]


class RestartStepWire(TypedDict):
    """Clients were told to discard the text of the events from `discard_from` on."""

    kind: Literal["restart"]
    attempt: int
    discard_from: int
    at: str | None


class EndStepWire(TypedDict):
    """The end of the turn."""

    kind: Literal["end"]
    status: VisibleStatus
    error: Mapping[str, Any] | None
    at: str | None


StepWire = (
    WaitStepWire
    | AttemptStepWire
    | ModelCallStepWire
    | ToolCallStepWire
    | StrategyCallStepWire
    | MessageStepWire
    | FallbackStepWire
    | InnerCallStepWire
    | RetryStepWire
    | RestartStepWire
    | EndStepWire
)


class TurnSummaryWire(TypedDict):
    """A short summary of the steps' turn."""

    agent: str
    session_id: str
    turn_id: str
    trace_id: str
    status: VisibleStatus | Literal["running", "waiting"]
    created_at: str | None
    ended_at: str | None
    usage: UsageWire | None
    spent: NotRequired[SpentWire]


class StepPageWire(TurnSummaryWire):
    """A page of the steps of a turn, in the order in which they began."""

    steps: Sequence[StepWire]
    cursor: str | None


@dataclass(frozen=True)
class FeatureView:
    """An entry as people see it.

    Attributes:
        step: the fields of a step, with its ``kind``.
        of_calls: fields of the model calls that follow, until another entry changes them; None removes one.
    """

    step: Mapping[str, Any]
    of_calls: Mapping[str, Any] = field(default_factory=dict[str, Any])


ShowEntry = Callable[[FeatureEntry], FeatureView | None]
"""Shows an entry; None for one that is not shown."""
