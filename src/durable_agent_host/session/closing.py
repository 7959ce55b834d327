"""Closes a turn that was cut off, so that the provider accepts the next one: every call gets its result. Pure."""

from collections.abc import Callable, Iterable, Sequence

from agent_framework import Content, Message

from durable_agent_host.model.provider_item import STAMP

Answer = Callable[[str, int], Content]
"""A call's id, and how often that id occurred before in the same batch → the result for the model."""


def finished_part(messages: Iterable[Message]) -> list[Message]:
    """Keep the usable part of a model call whose stream was cut off.

    Guarantee: pure; the given messages are not changed.

    Args:
        messages: folded from the received updates.

    Returns:
        Texts and reasoning, and the calls of hosted tools that the provider had finished. Calls of function tools are
        left out: their arguments may be cut off, and none of them has run. So is the reasoning at the end: it may lack
        its seal, and what it led to is missing.
    """
    kept: list[Message] = []
    for message in messages:
        contents = [content for content in message.contents if _is_finished(content)]
        while contents and contents[-1].type == "text_reasoning":
            contents.pop()
        if contents:
            kept.append(Message(message.role, contents, author_name=message.author_name, message_id=message.message_id))
    return kept


def _is_finished(content: Content) -> bool:
    if content.type in {"text", "text_reasoning"}:
        return True
    is_call = content.type.endswith(("_call", "_request", "_result"))
    return not is_call or (content.type != "function_call" and STAMP in content.additional_properties)


def close_calls(messages: Sequence[Message], answer: Answer) -> list[Message]:
    """Give every function call of a turn its result.

    Guarantee: pure; the given messages are not changed.

    Args:
        messages: of the turn, in order.
        answer: returns the result for a call without one.

    Returns:
        The messages, with the missing results in a separate message after the last.
    """
    open_calls: list[str] = []
    for content in (content for message in messages for content in message.contents):
        if content.type == "function_call" and not (content.informational_only or content.hosted):
            open_calls.append(content.call_id or "")
        elif content.type == "function_result" and content.call_id in open_calls:
            open_calls.remove(content.call_id)
    results = [answer(call_id, open_calls[:place].count(call_id)) for place, call_id in enumerate(open_calls)]
    return [*messages, Message("tool", results)] if results else list(messages)
