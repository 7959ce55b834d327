"""How a model's answer ended, in the same words for every service."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NotRequired, TypedDict, cast

from agent_framework import AgentResponse, ChatResponse, Content, Message

from durable_agent_host.model.turn import EndStatus, TurnStatus

REFUSAL_DETAILS: Final = "durable_agent_host.refusal"
"""Key in a response's ``additional_properties``: what the service says of a refusal or filter, beside the answer:
``message`` and ``category``, as far as it does."""

STRUCTURED: Final = "durable_agent_host.structured"
"""Key in a response's ``additional_properties``: its text is JSON, as the agent's own ``response_format`` asks."""

CALLS_NOT_RUN: Final = "durable_agent_host.calls_not_run"
"""Key in a response's ``additional_properties``: id and name of each call of an answer that was cut off or refused."""

LENGTH: Final = "length"
CONTENT_FILTER: Final = "content_filter"
REFUSAL: Final = "refusal"
PAUSE: Final = "pause_turn"
"""Of a response that the model continues when it is sent back; neutral: ``pause``."""

_NEUTRAL: Final[Mapping[str, str]] = {
    **dict.fromkeys(("end_turn", "stop_sequence", "STOP_SEQUENCE", "STOP", "COMPLETE", "eos", "eos_token"), "stop"),
    **dict.fromkeys(
        ("max_tokens", "MAX_TOKENS", "max_output_tokens", "model_length", "incomplete", "ERROR_LIMIT"), LENGTH
    ),
    "model_context_window_exceeded": LENGTH,
    **dict.fromkeys(("content_filtered", "guardrail_intervened", "SAFETY", "safety", "sensitive"), CONTENT_FILTER),
    **dict.fromkeys(("RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "ERROR_TOXIC"), CONTENT_FILTER),
    **dict.fromkeys(("tool_use", "function_call"), "tool_calls"),
    PAUSE: "pause",
}
"""A service's word, where a client passes it on → the neutral one."""

_INCOMPLETE: Final = frozenset({LENGTH, "insufficient_system_resource"})
_REFUSALS: Final[Mapping[str, str]] = {
    CONTENT_FILTER: "the content filter of the model's service has stopped the answer",
    REFUSAL: "the model has refused to answer",
}
"""Finish reasons of refused answers → the message where the service gives none."""

AnswerStatus = Literal["success", "incomplete", "refused"]
VisibleStatus = Literal[EndStatus, "incomplete", "refused"]


class RefusalWire(TypedDict):
    """The words and the category that a service gives for a refused answer."""

    message: str
    category: NotRequired[str]


class AnswerEndWire(TypedDict):
    """How an answer ended: a neutral reason, or else the service's own word; None when it is unknown."""

    finish_reason: str | None
    refusal: NotRequired[RefusalWire]


_MAX_CHARACTERS: Final = 2_000
"""Of the message of a refusal."""

_KIND: Final = "model_output_kind"


def refusal(text: str) -> Content:
    """Return a text with the framework's marks of a refusal."""
    return Content("text", text=text, additional_properties={"core": {_KIND: "refusal"}, _KIND: "refusal"})


def is_refusal(content: Content) -> bool:
    """Return whether a content is the model's refusal, by either of the framework's marks."""
    return content.type == "text" and is_marked_refusal(content.additional_properties)


def is_marked_refusal(properties: Mapping[str, Any] | None) -> bool:
    """Return whether a content's properties have either mark."""
    marks: tuple[Any, ...] = (properties, (properties or {}).get("core"))
    return any(cast("Mapping[str, Any]", mark).get(_KIND) == "refusal" for mark in marks if isinstance(mark, Mapping))


@dataclass(frozen=True)
class AnswerEnd:
    """How an answer ended.

    Attributes:
        finish_reason: ``stop``, ``length``, ``content_filter``, ``refusal``, ``tool_calls``, ``pause``, or the
            service's own word; None when unknown.
        refusal: ``message``, and ``category`` if the service gives one; None unless the answer is refused.
    """

    finish_reason: str | None = None
    refusal: Mapping[str, str] | None = None

    @property
    def status(self) -> AnswerStatus:
        """The status for callers."""
        return status_of_end(self.finish_reason)


def status_of_end(finish_reason: str | None) -> AnswerStatus:
    """Return the status for callers of an answer with a neutral finish reason."""
    if finish_reason in _REFUSALS:
        return "refused"
    return "incomplete" if finish_reason in _INCOMPLETE else "success"


def visible_turn_status(status: TurnStatus, finish_reason: str | None) -> VisibleStatus:
    """Return the status of a turn for callers: ``completed`` only when its answer is complete."""
    end_status = status_of_end(finish_reason)
    return end_status if status == "completed" and end_status != "success" else cast("EndStatus", status)


def end_of_answer(response: AgentResponse[Any] | ChatResponse[Any]) -> AnswerEnd:
    """Return how a response ended, from its finish reason, its last contents and the data beside them."""
    reason = _NEUTRAL.get(response.finish_reason or "", response.finish_reason)
    contents = _last_contents(response.messages)
    refusal_text = "".join(content.text or "" for content in contents if is_refusal(content))
    if reason in {None, "stop"}:  # not every service says more
        has_calls = any(content.type == "function_call" and not content.hosted for content in contents)
        reason = REFUSAL if refusal_text else "tool_calls" if has_calls else reason
    if reason not in _REFUSALS:
        return AnswerEnd(reason)
    details: Any = (response.additional_properties or {}).get(REFUSAL_DETAILS)
    fields = cast("dict[str, Any]", details) if isinstance(details, dict) else {}
    message = str(refusal_text or fields.get("message") or _REFUSALS[reason])
    category = fields.get("category")
    return AnswerEnd(
        reason, {"message": message[:_MAX_CHARACTERS], **({"category": str(category)} if category else {})}
    )


def _last_contents(messages: Iterable[Message]) -> list[Content]:
    """Return the contents after the last message that is not the model's."""
    contents: list[Content] = []
    for message in messages:
        contents = [*contents, *message.contents] if message.role == "assistant" else []
    return contents
