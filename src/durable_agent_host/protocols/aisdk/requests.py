"""What a page of the AI SDK posts. Pure.

Theory of operation: a chat is a session, and an answer is a turn: they have the same ids.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from durable_agent_host.model.pending_call import PendingCall

_PART_FIELDS: Final = {"type": "type", "text": "text", "url": "url", "mediaType": "media_type", "filename": "name"}


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
        call_ids = {call.call_id for call in pending_calls}
        replies: list[dict[str, Any]] = []
        for part in self.parts:
            match part:
                case {"state": "approval-responded", "approval": {"approved": is_approved, **details}}:
                    reply = {"approved": is_approved, "reason": details.get("reason")}
                case {"state": "output-available", "output": output}:
                    reply = {"result": output}
                case {"state": "output-error", "errorText": error}:
                    reply = {"error": error}
                case _:
                    continue
            if part["toolCallId"] in call_ids:
                replies.append({"call_id": part["toolCallId"], **reply})
        return replies


class Post(BaseModel, extra="allow"):
    """The body of a POST, with further fields for `run`."""

    id: str
    messages: list[Message] = Field(min_length=1)
    trigger: str = "submit-message"
    message_id: str | None = Field(None, alias="messageId")
    agent: None = None
    session_id: None = None
    idempotency_key: None = None
