"""Tools as the framework sees them: views of the app's tools that never ask for the framework's approval."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from agent_framework import FunctionTool
from pydantic import BaseModel

from durable_agent_host.agent.dynamic_subclass import overridden_class
from durable_agent_host.agent.mcp_servers import IS_HARMLESS
from durable_agent_host.errors import TurnError
from durable_agent_host.tool_calls import IN_DOUBT, InDoubt

_POLICIES: Final = frozenset({"retry", "fail", "ask"})


class _NeedsApproval:
    """The override; stands before the tool's own class in the method resolution order."""

    @property
    def approval_mode(self) -> str:
        return "never_require"

    @approval_mode.setter
    def approval_mode(self, mode: str) -> None:
        self.__dict__["approval_mode"] = mode


def needs_approval(tool: FunctionTool) -> bool:
    """Return whether a person must approve the calls of a hosted tool.

    Returns:
        True when the app's own tool has ``always_require``.
    """
    return isinstance(tool, _NeedsApproval)


def without_approvals(tools: Iterable[Any]) -> list[Any]:
    """Return tools that the framework runs without asking; `needs_approval` identifies those that need approval.

    Returns:
        A new list, with views replacing the tools that need approval.

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
    if not isinstance(tool, FunctionTool) or tool.approval_mode != "always_require":
        return tool
    view = object.__new__(overridden_class(type(tool), _NeedsApproval))
    view.__dict__ = tool.__dict__
    return view


def in_doubt_policy(tool: FunctionTool) -> InDoubt:
    """Return the policy for a call that was running when its process or connection ended.

    Returns:
        The policy; ``fail`` when nothing is declared.
    """
    properties = tool.additional_properties or {}
    if (policy := properties.get(IN_DOUBT)) in _POLICIES:
        return cast("InDoubt", policy)
    return "retry" if IS_HARMLESS in properties else "fail"


def plain_arguments(arguments: BaseModel | Mapping[str, Any]) -> dict[str, Any]:
    """Convert arguments to JSON; the framework has converted them to the function's own types."""
    fields = arguments.model_dump(mode="json") if isinstance(arguments, BaseModel) else dict(arguments)
    try:
        return cast("dict[str, Any]", json.loads(json.dumps(fields, default=_encode_default)))
    except (TypeError, ValueError, RecursionError):
        return {name: str(value) for name, value in fields.items()}


def _encode_default(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else str(value)
