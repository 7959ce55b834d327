"""What a page of the AI SDK posts, and a conversation as its messages. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from durable_agent_host.codec.strict_json import object_at
from durable_agent_host.model.pending_call import PendingCall
from durable_agent_host.protocols.aisdk.events import Chunk, output_of

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


def messages_of(session: Mapping[str, Any], mark: str) -> list[dict[str, Any]]:
    """Return the messages of a session, and the request of the turn that runs or waits: its stream has the answer.

    Args:
        session: a page of it.
        mark: of its branch, in the ids of answers.
    """
    parts: dict[tuple[str, str], list[Chunk]] = {}
    calls: dict[str, Chunk] = {}
    for message in session["messages"]:
        role = "user" if message["role"] == "user" else "assistant"
        message_parts = parts.setdefault((message["turn_id"], role), [])
        for content in message["contents"]:
            if content["$type"] == "functionResult" and content["callId"] in calls:
                result = {"state": "output-available", "output": output_of(content["result"])}
                calls[content["callId"]] |= result
                continue
            part = _part_of(content)
            calls[part.get("toolCallId", "")] = part
            message_parts.append(part)
    if running := session.get("running_turn"):
        parts[running["turn_id"], "user"] = [{"type": "text", "text": running["message"]}]
    return [
        {"id": turn_id + (mark if role == "assistant" else "-user"), "role": role, "parts": message_parts}
        for (turn_id, role), message_parts in parts.items()
    ]


def _part_of(content: Mapping[str, Any]) -> Chunk:
    match content:
        case {"$type": "text" | "reasoning" as kind, "text": text}:
            return {"type": kind, "text": text}
        case {"uri": url}:
            return {"type": "file", "url": url, "mediaType": content.get("mediaType") or "application/octet-stream"}
        case {"$type": "functionCall", "callId": call_id, "name": name}:
            names = {"toolCallId": call_id, "toolName": name, "input": content.get("arguments")}
            return {"type": "dynamic-tool", "state": "input-available", **names}
        case _:
            return {"type": "data-content", "data": content}
