"""What a page of the AI SDK posts. Pure.

Theory of operation: a chat is a session, and an answer is a turn: they have the same ids.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from durable_agent_host.codec.strict_json import object_at
from durable_agent_host.model.pending_call import PendingCall

_PART_FIELDS: Final = {"type": "type", "text": "text", "url": "url", "mediaType": "media_type", "filename": "name"}
RUN_FIELDS: Final = ("policy", "options", "response_format", "enable_tool_calls", "client_tools")
"""The fields of `run` that a post may have, too."""


class Message(BaseModel):
    """A `UIMessage`."""

    id: str
    role: Literal["user", "assistant"]
    parts: list[dict[str, Any]]

    @property
    def content(self) -> list[dict[str, Any]]:
        """The parts for `run`, which refuses what is neither text nor file."""
        return [{_PART_FIELDS[name]: part[name] for name in part if name in _PART_FIELDS} for part in self.parts]

    def replies(self, pending_calls: Sequence[PendingCall]) -> list[dict[str, Any]]:
        """Return what the page replies to the calls that wait."""
        call_ids = [None, *(call.call_id for call in pending_calls)]  # a part without an id is refused
        replies: list[dict[str, Any]] = []
        for part in self.parts:
            match part.get("state"):
                case "approval-responded":
                    approval = object_at(part, "approval")
                    reply = {"approved": approval.get("approved"), "reason": approval.get("reason")}
                case "output-available":
                    reply = {"result": part.get("output")}
                case "output-error":
                    reply = {"error": part.get("errorText")}
                case _:
                    continue
            call_id = part.get("toolCallId")
            if call_id in call_ids:
                replies.append({"call_id": call_id, **reply})
        return replies


class Post(BaseModel, extra="allow"):
    """The body of a POST, with further fields for `run`."""

    id: str
    messages: list[Message] = Field(min_length=1)
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    message_id: str | None = Field(None, alias="messageId")
