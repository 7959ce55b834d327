"""What tools declare: who approves their calls, and what becomes of calls in doubt.

The framework sees views of the tools that never ask for its own approval. The host keeps the declarations of tools
whose calls it journals.
"""

from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, cast, get_args
from weakref import WeakKeyDictionary

from agent_framework import FunctionTool

from durable_agent_host.agent.dynamic_subclass import overridden_class
from durable_agent_host.errors import TurnError
from durable_agent_host.tool_calls import IN_DOUBT, InDoubt

CAN_LOSE_SERVER: Final = "durable_agent_host.can_lose_server"
"""The additional property of a tool that runs at a server, whose connection may be lost."""

IS_HARMLESS: Final = "durable_agent_host.is_harmless"
"""The additional property of a tool that its server calls idempotent or read-only."""


class _NeedsApproval:
    """The override; stands before the tool's own class in the method resolution order."""

    @property
    def approval_mode(self) -> str:
        return "never_require"

    @approval_mode.setter
    def approval_mode(self, mode: str) -> None:
        self.__dict__["approval_mode"] = mode


@dataclass(frozen=True)
class AgentFunction:
    """The function of a tool that is an agent, which runs the hosted copy of the agent.

    Attributes:
        function: runs the hosted copy of the agent.
        is_journaled: whether the calls of the agent are journaled each for itself.
    """

    function: Callable[..., Any]
    is_journaled: bool


class _AgentTool:
    """The override of a tool that is an agent; stands before the tool's own class in the method resolution order."""

    @property
    def func(self) -> Any:
        return AGENT_FUNCTIONS[self.__dict__["func"]].function

    @func.setter
    def func(self, function: Any) -> None:
        self.__dict__["func"] = function


class _RunsAtClient:
    """The override of a tool without a function: the framework runs it, and it returns what the client gave."""

    @property
    def func(self) -> Any:
        return _client_result

    @func.setter
    def func(self, function: Any) -> None:
        self.__dict__["func"] = function


AGENT_FUNCTIONS: Final[WeakKeyDictionary[Any, AgentFunction]] = WeakKeyDictionary()
"""By the function of the app's tool."""


def as_agent_tool(tool: FunctionTool) -> FunctionTool:
    """Return a view of a tool that is an agent, whose function calls the agent's hosted copy."""
    if isinstance(tool, _AgentTool):
        return tool
    view = object.__new__(overridden_class(type(tool), _AgentTool))
    view.__dict__ = tool.__dict__
    return view


def is_agent_tool(tool: FunctionTool) -> bool:
    """Return whether a hosted tool is an agent whose calls are journaled each for itself."""
    return isinstance(tool, _AgentTool) and AGENT_FUNCTIONS[tool.__dict__["func"]].is_journaled


def is_hand_off(tool: FunctionTool) -> bool:
    """Return whether a tool only tells its workflow which agent is next, which each attempt has to be told."""
    return str(getattr(tool.func, "__module__", "")).startswith("agent_framework_orchestrations.")


class RemovedTool(FunctionTool):
    """Stands for a tool of which a turn has calls, and that the agent does not have; no model call offers it."""

    def __init__(self, name: str, *, runs_at_client: bool = False, ends_run: bool = False) -> None:
        self.ends_run = ends_run
        super().__init__(name=name, func=None if runs_at_client else _do_nothing, input_model={"type": "object"})


def _do_nothing() -> None:
    """Be the function of a tool that is never called."""


CLIENT_RESULT: Final = ContextVar[Any]("durable_agent_client_result")
"""The client's result of the running call of a tool without a function."""


async def _client_result(**_: Any) -> Any:
    return CLIENT_RESULT.get()


def runs_at_client(tool: FunctionTool) -> bool:
    """Return whether the client runs a hosted tool: the app's own has no function."""
    return isinstance(tool, _RunsAtClient)


def needs_approval(tool: FunctionTool) -> bool:
    """Return whether a person must approve the calls of a hosted tool.

    Returns:
        True when the app's own tool has ``always_require``.
    """
    return isinstance(tool, _NeedsApproval)


def without_approvals(tools: Iterable[Any]) -> list[Any]:
    """Return tools that the framework runs without asking, also those that need approval or run at the client.

    `needs_approval` and `runs_at_client` identify them.

    Returns:
        A new list, with views replacing those tools.

    Raises:
        TurnError: a tool was made from another tool, whose declaration would be ignored.
    """
    return [_view(tool) for tool in tools]


def _view(tool: Any) -> Any:
    if isinstance(inner := getattr(tool, "func", None), FunctionTool):
        raise TurnError(
            f"the tool {inner.name!r} was made a tool twice, and the declarations of the inner one (approval, "
            "in_doubt) would be lost: remove @tool, @durable_tool(...) makes the tool"
        )
    if not isinstance(tool, FunctionTool):
        return tool
    kind = type(tool)
    if tool.declaration_only:
        kind = overridden_class(kind, _RunsAtClient)
    if tool.approval_mode == "always_require":
        kind = overridden_class(kind, _NeedsApproval)
    if kind is type(tool):
        return tool
    view = object.__new__(kind)
    view.__dict__ = tool.__dict__
    return view


def in_doubt_policy(tool: FunctionTool) -> InDoubt:
    """Return the policy for a call that was running when its process or connection ended.

    Returns:
        The policy; ``fail`` when nothing is declared.
    """
    properties = tool.additional_properties or {}
    if (policy := properties.get(IN_DOUBT)) in get_args(InDoubt):
        return cast("InDoubt", policy)
    return "retry" if IS_HARMLESS in properties else "fail"


def find_parameters(tool: FunctionTool) -> Mapping[str, Any]:
    """Return the JSON schema of a tool's arguments.

    It is made anew: OpenAI's clients forbid further properties in ``FunctionTool.parameters()``, in place. Where
    pydantic ignores what it does not know, the schema forbids it.
    """
    return tool.parameters() if tool.input_model is None else _forbid_unknown(tool.input_model.model_json_schema())


def _forbid_unknown(schema: Any) -> Any:
    """Copy a schema of pydantic; its objects take only the properties that they name, unless they say otherwise."""
    if isinstance(schema, list):
        return [_forbid_unknown(part) for part in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    closed_schema = {name: _forbid_unknown(part) for name, part in cast("dict[str, Any]", schema).items()}
    is_closed = closed_schema.get("type") == "object" and "properties" in closed_schema
    return {"additionalProperties": False, **closed_schema} if is_closed else closed_schema
