"""Normalises a request for the model: its transcript and tools, for all input formats.

A transcript is the list of items that the model sees: stored items of earlier responses, followed by the input
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
    body_input = body.get("input")
    if isinstance(body_input, str):
        return [{"type": "message", "role": "user", "content": body_input}]
    if not isinstance(body_input, list):
        return []
    return [cast("Json", item) for item in cast("list[Any]", body_input) if isinstance(item, dict)]


def get_item_type(item: Mapping[str, Any]) -> str:
    """Return the item's type; an item without one is a message, or a reference if it has only an id."""
    return str(item.get("type") or ("message" if "role" in item else "item_reference"))


def get_role(item: Mapping[str, Any]) -> str:
    """Return the role of a message, an empty string for every other item."""
    return str(item.get("role") or "") if get_item_type(item) == "message" else ""


def extract_text(content: Any) -> str:
    """Return the text of message content or of a tool output, joined over its parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = (cast("Json", part) for part in cast("list[Any]", content) if isinstance(part, dict))
    return "".join(str(part.get("text") or part.get("refusal") or "") for part in parts)


def split_text(text: str, length: int) -> list[str]:
    """Split a text into chunks of this length; an empty text has none."""
    return [text[start : start + length] for start in range(0, len(text), length)]


@dataclass(frozen=True)
class ToolResult:
    """One function call of the transcript with its output."""

    name: str
    output: str


@dataclass(frozen=True)
class ParsedRequest:
    """A request as the model reads it."""

    body: Mapping[str, Any]
    transcript: Sequence[Json]

    @property
    def model(self) -> str:
        """The model's name."""
        return str(self.body.get("model") or "")

    @property
    def agent(self) -> str:
        """The instructions, whether sent as a field or as system and developer messages."""
        instruction_texts = [
            extract_text(item.get("content")) for item in self.transcript if get_role(item) in AGENT_ROLES
        ]
        return "\n".join([str(self.body.get("instructions") or ""), *instruction_texts]).strip()

    @property
    def user_texts(self) -> list[str]:
        """The text of every user message, oldest first."""
        return [extract_text(item.get("content")) for item in self.transcript if get_role(item) == "user"]

    @property
    def user_text(self) -> str:
        """The last user message."""
        user_messages = (item for item in reversed(self.transcript) if get_role(item) == "user")
        return next((extract_text(item.get("content")) for item in user_messages), "")

    @property
    def assistant_texts(self) -> list[str]:
        """The text of every assistant message, oldest first."""
        return [extract_text(item.get("content")) for item in self.transcript if get_role(item) == "assistant"]

    @property
    def since_user(self) -> list[Json]:
        """The items after the last user message."""
        newest_items = list(takewhile(lambda item: get_role(item) != "user", reversed(self.transcript)))
        return newest_items[::-1]

    @property
    def rounds(self) -> int:
        """Number of rounds of tool results after the last user message; parallel results count once."""
        item_types = ["", *(get_item_type(item) for item in self.since_user)]
        return sum(
            item_type == "function_call_output" != previous_type for previous_type, item_type in pairwise(item_types)
        )

    def get_results(self, items: Sequence[Json]) -> list[ToolResult]:
        """Return the tool outputs among these items with the names of their calls, in order."""
        names = {item.get("call_id"): str(item.get("name")) for item in self.transcript if "name" in item}
        outputs = [item for item in items if get_item_type(item) == "function_call_output"]
        return [
            ToolResult(names.get(item.get("call_id"), "tool"), extract_text(item.get("output"))) for item in outputs
        ]

    @property
    def logs(self) -> list[str]:
        """Logs of earlier hosted code runs in the transcript."""
        calls = [item for item in self.transcript if get_item_type(item) == "code_interpreter_call"]
        outputs = [output for call in calls for output in cast("list[Json]", call.get("outputs") or [])]
        return [str(output["logs"]) for output in outputs if output.get("type") == "logs"]

    @property
    def functions(self) -> dict[str, Json]:
        """The function tools: name → parameter schema."""
        function_tools = (tool for tool in self.tools if tool.get("type") == "function")
        return {str(tool["name"]): cast("Json", tool.get("parameters") or {}) for tool in function_tools}

    def has_tool(self, tool_type: str) -> bool:
        """Return whether the request has a hosted tool of this type."""
        return any(tool.get("type") == tool_type for tool in self.tools)

    def includes(self, value: str) -> bool:
        """Return whether the request's `include` has this value."""
        return value in cast("list[str]", self.body.get("include") or [])

    @property
    def tools(self) -> list[Json]:
        """The tools, as sent."""
        return cast("list[Json]", self.body.get("tools") or [])
