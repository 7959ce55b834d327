"""Normalises a request for the model: its transcript and offered tools, for all input forms.

Pure. A transcript is the list of items that the model sees: stored items of earlier responses, followed by the input
of this request.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Any, cast

from practice_model.dialects.responses.items import Json

AGENT_ROLES = ("system", "developer")


def input_items(body: Mapping[str, Any]) -> list[Json]:
    """Return the input as a list of items; a plain string is one user message."""
    given = body.get("input")
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    if not isinstance(given, list):
        return []
    return [cast("Json", item) for item in cast("list[Any]", given) if isinstance(item, dict)]


def kind_of(item: Mapping[str, Any]) -> str:
    """Return the item's type; an item without one is a message, or a reference if it has only an id."""
    return str(item.get("type") or ("message" if "role" in item else "item_reference"))


def role_of(item: Mapping[str, Any]) -> str:
    """Return the role of a message, an empty string for every other item."""
    return str(item.get("role") or "") if kind_of(item) == "message" else ""


def text_of(content: Any) -> str:
    """Return the text of message content or of a tool output, joined over its parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = (cast("Json", part) for part in cast("list[Any]", content) if isinstance(part, dict))
    return "".join(str(part.get("text") or part.get("refusal") or "") for part in parts)


@dataclass(frozen=True)
class ToolResult:
    """One function call of the transcript with its output."""

    name: str
    output: str


@dataclass(frozen=True)
class Reading:
    """A request from the model's view."""

    body: Mapping[str, Any]
    transcript: Sequence[Json]

    @property
    def model(self) -> str:
        """The model's name."""
        return str(self.body.get("model") or "")

    @property
    def agent(self) -> str:
        """The instructions, whether sent as a field or as system and developer messages."""
        spoken = [text_of(item.get("content")) for item in self.transcript if role_of(item) in AGENT_ROLES]
        return "\n".join([str(self.body.get("instructions") or ""), *spoken]).strip()

    @property
    def user_texts(self) -> list[str]:
        """The text of every user message, oldest first."""
        return [text_of(item.get("content")) for item in self.transcript if role_of(item) == "user"]

    @property
    def user_text(self) -> str:
        """The last user message."""
        said = (item for item in reversed(self.transcript) if role_of(item) == "user")
        return next((text_of(item.get("content")) for item in said), "")

    @property
    def assistant_texts(self) -> list[str]:
        """The text of every assistant message, oldest first."""
        return [text_of(item.get("content")) for item in self.transcript if role_of(item) == "assistant"]

    @property
    def since_user(self) -> list[Json]:
        """The items after the last user message."""
        newest = list(takewhile(lambda item: role_of(item) != "user", reversed(self.transcript)))
        return newest[::-1]

    @property
    def rounds(self) -> int:
        """Number of rounds of tool results after the last user message; parallel results count once."""
        kinds = ["", *(kind_of(item) for item in self.since_user)]
        return sum(kind == "function_call_output" != before for before, kind in pairwise(kinds))

    def results(self, items: Sequence[Json]) -> list[ToolResult]:
        """Return the tool outputs among these items with the names of their calls, in order."""
        names = {item.get("call_id"): str(item.get("name")) for item in self.transcript if "name" in item}
        outputs = [item for item in items if kind_of(item) == "function_call_output"]
        return [ToolResult(names.get(item.get("call_id"), "tool"), text_of(item.get("output"))) for item in outputs]

    @property
    def logs(self) -> list[str]:
        """Logs of earlier hosted code runs in the transcript."""
        calls = [item for item in self.transcript if kind_of(item) == "code_interpreter_call"]
        outputs = [output for call in calls for output in cast("list[Json]", call.get("outputs") or [])]
        return [str(output["logs"]) for output in outputs if output.get("type") == "logs"]

    @property
    def functions(self) -> dict[str, Json]:
        """The offered function tools: name → parameter schema."""
        offered = (tool for tool in self.tools if tool.get("type") == "function")
        return {str(tool["name"]): cast("Json", tool.get("parameters") or {}) for tool in offered}

    def offers(self, tool_type: str) -> bool:
        """Return whether the request offers a hosted tool of this type."""
        return any(tool.get("type") == tool_type for tool in self.tools)

    def includes(self, what: str) -> bool:
        """Return whether the request's `include` has this value."""
        return what in cast("list[str]", self.body.get("include") or [])

    @property
    def tools(self) -> list[Json]:
        """The offered tools, as sent."""
        return cast("list[Json]", self.body.get("tools") or [])
