"""Tools as the framework sees them: views of the app's tools that never ask for the framework's approval."""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, cast

from agent_framework import FunctionTool
from pydantic import BaseModel

from durable_agent_host.agent.overriding import overridden_class
from durable_agent_host.errors import TurnError
from durable_agent_host.tool_calls import IN_DOUBT, InDoubt

_LOGGER = logging.getLogger(__name__)
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

    Args:
        tool: from `without_approvals`.

    Returns:
        True when the app's own tool has ``always_require``.
    """
    return isinstance(tool, _NeedsApproval)


def without_approvals(tools: Iterable[Any]) -> list[Any]:
    """Return tools that the framework runs without asking; `needs_approval` identifies those that need approval.

    Guarantee: the app's tools are not changed. A view shares the attributes of its tool, counters included.

    Args:
        tools: of one run, normalized by the framework.

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


async def in_doubt_policy(tool: FunctionTool, mcp_servers: Sequence[Any]) -> InDoubt:
    """Return the policy for a call that was running when its process died.

    Args:
        tool: as declared with `durable_tool`.
        mcp_servers: the agent's MCP tools; tools that a server calls idempotent or read-only are run again.

    Returns:
        The policy; ``fail`` when nothing is declared.
    """
    declared = (tool.additional_properties or {}).get(IN_DOUBT)
    if declared in _POLICIES:
        return cast("InDoubt", declared)
    for server in mcp_servers:
        for one in cast("list[FunctionTool]", server.functions):
            remote_name: Any = (one.additional_properties or {}).get("_mcp_remote_name")
            if one.name == tool.name and await _is_harmless(server, remote_name):
                return "retry"
    return "fail"


async def _is_harmless(server: Any, remote_name: Any) -> bool:
    """Read a tool's annotations from its MCP server; the framework does not keep them."""
    try:
        connection, params = await server.live_connection(), None
        while True:
            page: Any = await connection.list_tools_page(params)
            for listed in page.tools:
                if listed.name == remote_name:
                    hints = listed.annotations
                    return bool(hints and (_hint(hints, "idempotent") or _hint(hints, "read_only")))
            if not page.next_cursor:
                return False
            params = import_module("mcp").types.PaginatedRequestParams(cursor=page.next_cursor)
    except Exception as error:  # noqa: BLE001 - without annotations, the tool is not known to be harmless
        _LOGGER.warning("cannot ask the MCP server of tool %r whether it may be run again: %s", remote_name, error)
        return False


def _hint(annotations: Any, name: str) -> bool:
    head, *tail = name.split("_")
    camel = head + "".join(part.capitalize() for part in tail)
    return getattr(annotations, f"{name}_hint", None) is True or getattr(annotations, f"{camel}Hint", None) is True


def plain_arguments(arguments: BaseModel | Mapping[str, Any]) -> dict[str, Any]:
    """Convert arguments to JSON; the framework has converted them to the function's own types. Guarantee: pure."""
    fields = arguments.model_dump(mode="json") if isinstance(arguments, BaseModel) else dict(arguments)
    try:
        return cast("dict[str, Any]", json.loads(json.dumps(fields, default=_shown)))
    except (TypeError, ValueError, RecursionError):
        return {name: str(value) for name, value in fields.items()}


def _shown(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else str(value)
