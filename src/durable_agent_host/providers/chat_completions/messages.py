"""Stamps contents with what they lack of their message, and rebuilds the message. Pure.

Theory of operation. `contents.standard_message` rebuilds role, content, refusal and calls from the contents. All other
fields (``reasoning_content``, ``reasoning_details``, annotations, audio, whatever else a service sends) are on the
stamp of the first content as the service wrote them, except that a long text which one of the contents has is a
reference to it. So nothing is stored twice, and the service gets back exactly what it sent.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content

from durable_agent_host.providers.chat_completions.contents import OF_MESSAGES, contents_of, standard_message
from durable_agent_host.providers.stamps import Stamps

STAMPS: Final = Stamps("chat_completions")

MAX_CALL_ID: Final = 40
"""OpenAI's limit; a longer id is sent back only to the service that created it."""

_FROM: Final = "durable_agent_host.from"
_SHORTEST: Final = 24
_TEXTS: Final = ("text", "protected_data", "arguments", "uri")
_BYTES: Final = "bytes"
_STANDARD: Final = ("role", "content", "refusal", "tool_calls")


def finished_item(
    message: Mapping[str, Any],
    *,
    answer_id: str,
    service: str,
    choice: int,
    audio_format: str,
    beside: Mapping[str, Any],
    is_parsed: bool,
) -> dict[str, Any]:
    """Make the item of a finished message, which the fold uses to complete its contents.

    Args:
        message: from the service, or assembled.
        answer_id: the completion's id.
        service: the answering host.
        choice: its number.
        audio_format: requested format.
        beside: data of the answer outside of its message.
        is_parsed: whether the app has its own parser, whose contents stay unchanged.
    """
    told: dict[str, Any] = {"type": "message", "id": answer_id, "message": dict(message), "service": service}
    told |= {"choice": choice} if choice else {}
    told |= {"audio_format": audio_format} if "audio" in message and audio_format else {}
    told |= {"is_parsed": True} if is_parsed else {}
    return told | ({"beside": dict(beside)} if beside else {})


def complete_item(contents: list[Content], item: Mapping[str, Any] | None) -> list[Content]:
    """Return the contents of a message, stamped with what they lack.

    Args:
        contents: collected from the stream, or read by the app's parser.
        item: from `finished_item`; None when the message did not finish.

    Returns:
        The same contents without an item, otherwise new ones.
    """
    if item is None:
        return contents
    message = cast("dict[str, Any]", item["message"])
    if item.get("is_parsed"):
        said = contents
    else:
        others = [content for content in contents if content.type not in OF_MESSAGES]
        said = [*contents_of(message, item.get("audio_format", "")), *others]
    for place, call in enumerate(content for content in said if content.type == "function_call"):
        answer = f"{item['id']}:{item['choice']}" if item.get("choice") else item["id"]
        call.id = call_name(answer, place, call.call_id)
    lacking = _lacking(message, standard_message(said), said)
    is_own = any(len(str(call.get("id"))) > MAX_CALL_ID for call in message.get("tool_calls") or ())
    if lacking or item.get("choice") or item.get("beside") or is_own:
        said = said or [Content("text", text="")]
        kept = {name: item[name] for name in ("service", "choice", "beside") if name in item}
        STAMPS.put(said, {"type": "message", "id": item["id"]}, {}, lacking={**kept, **lacking})
    return said


def call_name(answer_id: str, place: int, call_id: str | None) -> str:
    """Return a call's name for the framework, which gives unnamed calls another name in every process.

    Args:
        answer_id: the completion's id; some services give all completions the same.
        place: of the call in its message, from 0.
        call_id: of the call.
    """
    return f"{answer_id}:{place}:{call_id}"


def message_of(group: Sequence[Content], service: str) -> dict[str, Any]:
    """Write a group of contents as their original message.

    Args:
        group: from `STAMPS.groups`; without a stamp, contents of any origin.
        service: the host of the request.

    Returns:
        The original message for the same service; for another one, the standard fields.
    """
    rebuilt = standard_message(group)
    mark = STAMPS.of(group[0]) if group else None
    if mark is None:
        details = _details_of(group)
        return rebuilt | ({"reasoning_details": details} if details else {})
    kept = cast("dict[str, Any]", mark.get("message") or {})
    is_own = mark.get("service") == service
    said = rebuilt | {name: value for name, value in kept.items() if is_own or name in _STANDARD}
    try:
        said = cast("dict[str, Any]", _resolved(said, group))
    except (IndexError, KeyError, TypeError):  # the contents were changed
        return rebuilt
    if not _has_calls_of(rebuilt, said):
        said = {name: value for name, value in said.items() if name != "tool_calls"}
        said |= {"tool_calls": rebuilt["tool_calls"]} if "tool_calls" in rebuilt else {}
    if not is_own:
        said["tool_calls"] = [_standard_call(call) for call in said.get("tool_calls") or ()]
    left_out = [*mark.get("without", ()), *mark.get("refused", ())]
    return {name: value for name, value in said.items() if name not in left_out and (value or name != "tool_calls")}


def _details_of(contents: Iterable[Content]) -> list[Any]:
    """Read reasoning in the form of the framework's own client: details, as JSON."""
    sealed = [one.protected_data or "" for one in contents if one.type == "text_reasoning"]
    try:
        return [detail for one in sealed if one.startswith("[") for detail in json.loads(one)]
    except (ValueError, RecursionError):
        return []


def _has_calls_of(rebuilt: Mapping[str, Any], said: Mapping[str, Any]) -> bool:
    ids = [[call.get("id") for call in one.get("tool_calls") or ()] for one in (rebuilt, said)]
    return ids[0] == ids[1]


def _standard_call(call: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in call.items() if name in {"id", "type", "function", "custom"}}


def _lacking(message: Mapping[str, Any], rebuilt: Mapping[str, Any], contents: Sequence[Content]) -> dict[str, Any]:
    places = {text: place for text, place in _places(contents) if len(text) >= _SHORTEST}
    absent = object()
    differs = {name: value for name, value in message.items() if rebuilt.get(name, absent) != value}
    without = [name for name in rebuilt if name not in message]
    kept = {"message": _referring(differs, places.get)} if differs else {}
    return kept | ({"without": without} if without else {})


def _places(contents: Sequence[Content]) -> Iterable[tuple[str, Any]]:
    """List the texts of contents with their locations, including the whole reasoning."""
    yield "".join(content.text or "" for content in contents if content.type == "text_reasoning"), "reasoning"
    for number, content in enumerate(contents):
        for name in _TEXTS:
            if isinstance(text := getattr(content, name), str):
                yield text, [number, name]
        if content.type == "data" and content.uri:
            yield content.uri.partition(",")[2], [number, _BYTES]
        for place, note in enumerate(content.annotations or ()):
            for name in ("url", "title", "snippet"):
                if isinstance(text := note.get(name), str):
                    yield text, [number, place, name]


def _referring(value: Any, find: Callable[[str], Any]) -> Any:
    if isinstance(value, str):
        place = find(value)
        return value if place is None else {_FROM: place}
    if isinstance(value, dict):
        return {name: _referring(one, find) for name, one in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_referring(one, find) for one in cast("list[Any]", value)]
    return value


def _resolved(value: Any, contents: Sequence[Content]) -> Any:
    if isinstance(value, list):
        return [_resolved(one, contents) for one in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    found = cast("dict[str, Any]", value)
    if _FROM not in found:
        return {name: _resolved(one, contents) for name, one in found.items()}
    place: Any = found[_FROM]
    if place == "reasoning":
        return "".join(content.text or "" for content in contents if content.type == "text_reasoning")
    number, *where = cast("list[Any]", place)
    text = _text_at(where, contents[int(number)])
    if not isinstance(text, str):
        raise KeyError(place)
    return text


def _text_at(place: Sequence[Any], content: Content) -> Any:
    if place[0] == _BYTES:
        return str(content.uri).partition(",")[2]
    if isinstance(place[0], str):
        return getattr(content, place[0])
    return cast("Any", content.annotations)[place[0]][place[1]]
