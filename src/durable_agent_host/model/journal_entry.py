"""The steps of a turn that its journal records: model calls, tool calls, and the entries of features."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from durable_agent_host.model.call_path import CallPath


@dataclass(frozen=True)
class ModelCallStartedEntry:
    """The service generates a response in the background, or has stopped doing so.

    Attributes:
        path: of the call.
        continuation: fetches the response later; None when there is nothing left to fetch.
    """

    path: CallPath
    continuation: Mapping[str, Any] | None


@dataclass(frozen=True)
class Rejection:
    """A layer does not accept a response: it is not part of the conversation, and the model is asked again.

    Attributes:
        reason: a sentence.
        request: what the model is told after its answer.
    """

    reason: str
    request: str


@dataclass(frozen=True)
class ModelCallCompletedEntry:
    """A model call, of an agent or of a compaction strategy, has its complete response.

    Attributes:
        path: of the call.
        response: as `durable_agent_host.codec.journal_entry.encode_model_response` writes it.
        state: changes of the session's state up to here, or None.
        rejection: why the response is not used; None for others.
    """

    path: CallPath
    response: Mapping[str, Any]
    state: Mapping[str, Any] | None = None
    rejection: Rejection | None = None


@dataclass(frozen=True)
class ToolCallStartedEntry:
    """A tool is about to run. Without a `ToolCallCompletedEntry`, a crash leaves the call in doubt.

    Attributes:
        path: of the call.
        name: of the tool.
        arguments: for the tool.
        is_agent: whether it is an agent whose calls are journaled each for itself.
    """

    path: CallPath
    name: str
    arguments: Mapping[str, Any]
    is_agent: bool


ToolOutcome = Literal[
    "success",
    "error",
    "not_run",
    "invalid_arguments",
    "denied",
    "unknown",
    "unreachable",
    "terminated",
    "input_required",
]
"""How a tool call ended; "Events" in ``docs/reference/http.md`` says when."""
JournaledOutcome = Literal[ToolOutcome, "deferred"]

DEFERRED: Final = "deferred"
"""The outcome of a tool call that has done its own work, and whose result comes later, in another entry."""


@dataclass(frozen=True)
class ToolCallCompletedEntry:
    """A tool call has its result, or is `DEFERRED`.

    Attributes:
        path: of the call.
        outcome: how it ended.
        result: for the model; of a deferred call, what its pending call needs. A workflow that is an agent stops with
            questions as a deferred call, with its ``checkpoint`` and, like a model call, the ``response`` so far.
        state: changes of the session's state up to here, or None.
    """

    path: CallPath
    outcome: JournaledOutcome
    result: Mapping[str, Any]
    state: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class FeatureEntry:
    """What a feature needs to decide the same in the next run; the journal does not interpret it.

    Attributes:
        feature: which feature wrote it, and reads it.
        path: of the call that it is about; empty when it is about the turn.
        data: a JSON object of the feature.
    """

    feature: str
    path: CallPath
    data: Mapping[str, Any]


type JournalStep = (
    ModelCallStartedEntry | ModelCallCompletedEntry | ToolCallStartedEntry | ToolCallCompletedEntry | FeatureEntry
)
