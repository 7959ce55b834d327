"""Where a call is made in a turn, as a path: its key in the journal, in budgets and for the services that tools call.

``m0/t:call_1`` is a tool call of the turn's first model call, ``m0/t:call_1/m2`` the third model call of an agent
within that tool, ``a:writer/m0`` the first model call of the agent of a workflow's executor ``writer``. The calls of
one run are made in the same order in every attempt, so their paths are the same.
"""

from dataclasses import dataclass
from typing import Final

_ESCAPES: Final = (("%", "%25"), ("/", "%2F"), ("#", "%23"))


def _escape(text: str) -> str:
    for character, escape in _ESCAPES:
        text = text.replace(character, escape)
    return text


def _unescape(text: str) -> str:
    for character, escape in reversed(_ESCAPES):
        text = text.replace(escape, character)
    return text


@dataclass(frozen=True, slots=True)
class ModelStep:
    """A model call, by its position among the agent's."""

    position: int

    def __str__(self) -> str:
        return f"m{self.position}"


@dataclass(frozen=True, slots=True)
class CompactionStep:
    """A model call of a compaction strategy, by its number among those before one model call."""

    number: int

    def __str__(self) -> str:
        return f"c{self.number}"


@dataclass(frozen=True, slots=True)
class ToolStep:
    """A tool call, by its id.

    Attributes:
        call_id: from the model.
        occurrence: 0, or more when the same id comes again there.
    """

    call_id: str
    occurrence: int = 0

    def __str__(self) -> str:
        occurrence = f"#{self.occurrence}" if self.occurrence else ""
        return f"t:{_escape(self.call_id)}{occurrence}"


@dataclass(frozen=True, slots=True)
class ExecutorStep:
    """The agent of an executor of a workflow; what other executors do at the same time does not change its path.

    Attributes:
        executor: its id.
    """

    executor: str

    def __str__(self) -> str:
        return f"a:{_escape(self.executor)}"


type CallStep = ModelStep | CompactionStep | ToolStep | ExecutorStep


@dataclass(frozen=True, slots=True)
class CallPath:
    """The path of a call.

    Attributes:
        steps: from the turn's agent to the call.
    """

    steps: tuple[CallStep, ...] = ()

    def __str__(self) -> str:
        return "/".join(map(str, self.steps))

    def model_call(self, position: int) -> "CallPath":
        """Return the path of a model call that is made here."""
        return CallPath((*self.steps, ModelStep(position)))

    def compaction_call(self, number: int) -> "CallPath":
        """Return the path of a strategy's call before this model call."""
        return CallPath((*self.steps, CompactionStep(number)))

    def tool_call(self, call_id: str, occurrence: int = 0) -> "CallPath":
        """Return the path of a tool call that this model call makes."""
        return CallPath((*self.steps, ToolStep(call_id, occurrence)))

    def executor(self, executor_id: str) -> "CallPath":
        """Return the path of the agent of an executor of the workflow that runs here."""
        return CallPath((*self.steps, ExecutorStep(executor_id)))

    @property
    def run(self) -> "CallPath":
        """The path of the run that makes this call: empty for a run of the turn's agent."""
        match self.steps:
            case (*outer, ModelStep(), ToolStep() | CompactionStep()):
                return CallPath(tuple(outer))
            case _:
                return CallPath(self.steps[:-1])

    @property
    def position(self) -> int:
        """The position of the model call, or of the one that makes this call, in its run; -1 without one."""
        match self.steps:
            case (*_, ModelStep(position)) | (*_, ModelStep(position), ToolStep() | CompactionStep()):
                return position
            case _:
                return -1

    @property
    def compaction_number(self) -> int | None:
        """The number of a strategy's call; None for another call."""
        match self.steps:
            case (*_, CompactionStep(number)):
                return number
            case _:
                return None

    @property
    def call_id(self) -> str:
        """The id of a tool call; empty for another call."""
        match self.steps:
            case (*_, ToolStep(call_id)):
                return call_id
            case _:
                return ""

    @property
    def occurrence(self) -> int:
        """How many equal ids of tool calls precede this one."""
        match self.steps:
            case (*_, ToolStep(_, occurrence)):
                return occurrence
            case _:
                return 0

    @property
    def is_agent_run(self) -> bool:
        """Whether it is the run of an agent that counts as one tool call, or a part of it."""
        return len(self.steps) == 1 and self.call_id == "agent"

    @property
    def is_nested(self) -> bool:
        """Whether the call is made by an agent within the turn's agent."""
        return any(isinstance(step, ToolStep | ExecutorStep) for step in self.steps[:-1])


TURN_AGENT: Final = CallPath()
"""The runs of the turn's agent."""

AGENT_RUN: Final = CallPath((ToolStep("agent"),))
"""The run of an agent without a journal, which counts as one tool call."""


def parse_call_path(text: str) -> CallPath:
    """Parse the text of a path.

    Raises:
        ValueError: it is not a path.
    """
    return CallPath(tuple(map(_parse_step, text.split("/"))))


def _parse_step(text: str) -> CallStep:
    if text.startswith("t:"):
        call_id, _, occurrence = text.removeprefix("t:").partition("#")
        return ToolStep(_unescape(call_id), int(occurrence or 0))
    if text.startswith("a:"):
        return ExecutorStep(_unescape(text.removeprefix("a:")))
    number = int(text[1:])
    match text[:1]:
        case "m":
            return ModelStep(number)
        case "c":
            return CompactionStep(number)
        case _:
            raise ValueError(f"the step {text!r} of a call's path has an unknown kind")
