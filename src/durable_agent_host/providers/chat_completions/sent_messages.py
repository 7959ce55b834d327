"""Writes a conversation for Chat Completions: every call directly followed by its results. Pure."""

import hashlib
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, cast

from agent_framework import Content

from durable_agent_host.loops.giving_way import resting
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.provider_item import LOST_RESULT
from durable_agent_host.providers.call_names import accepted_name
from durable_agent_host.providers.chat_completions.contents import transcripts
from durable_agent_host.providers.chat_completions.messages import MAX_CALL_ID, STAMPS, message_of

Wire = dict[str, Any]

_MEDIA: Final = frozenset({"data", "uri"})
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def assistant_messages(contents: Sequence[Content], service: str, now: float) -> list[Wire]:
    """Write the contents of an assistant's message.

    Guarantee: pure.

    Args:
        contents: of one message.
        service: the host of the request.
        now: POSIX time; expired audio is sent back as its transcript.

    Returns:
        One message for each original one; contents of other origin become one. Messages without content are omitted.
    """
    found: list[Wire] = []
    for is_plain, groups in groupby(STAMPS.groups(contents), key=lambda group: STAMPS.of(group[0]) is None):
        if is_plain:
            loose = [content for group in groups for content in group]
            found.append(_with_short_ids(message_of(loose, service)))
        else:
            found += [_with_audio(message_of(group, service), group, now) for group in groups]
    return [message for message in found if _says_something(message)]


def _says_something(message: Mapping[str, Any]) -> bool:
    return bool(message.keys() - {"role", "content"}) or bool(message.get("content"))


def _with_audio(message: Wire, group: Sequence[Content], now: float) -> Wire:
    audio: Any = message.get("audio")
    if not isinstance(audio, dict):
        spoken = transcripts(group)
        return message | {"content": spoken} if spoken and not message.get("content") else message
    told = cast("dict[str, Any]", audio)
    expires: Any = told.get("expires_at")
    if told.get("id") and not (isinstance(expires, int | float) and expires <= now):
        return message | {"audio": {"id": told["id"]}}
    rest = {name: value for name, value in message.items() if name != "audio"}
    return rest | {"content": message.get("content") or transcripts(group) or None}


def _with_short_ids(message: Wire) -> Wire:
    calls = cast("list[Wire]", message.get("tool_calls") or [])
    return message | ({"tool_calls": [call | {"id": short_id(call["id"])} for call in calls]} if calls else {})


def short_id(call_id: Any) -> str:
    """Return an id for a call that OpenAI accepts; longer ones come from other services. Guarantee: pure."""
    known = str(call_id)
    return known if len(known) <= MAX_CALL_ID else "call_" + hashlib.sha256(known.encode()).hexdigest()[:24]


def media_of(contents: Iterable[Content]) -> list[Content]:
    """List images and files that only a user's message can carry: from results, and an assistant's of other origin.

    Guarantee: pure.

    Args:
        contents: of a message of a tool or of an assistant.
    """
    found: list[Content] = []
    for group in STAMPS.groups(contents):
        if STAMPS.of(group[0]) is not None:
            continue
        for content in group:
            results = content.items or [] if content.type == "function_result" else [content]
            found += [one for one in results if one.type in _MEDIA]
    return found


def paired_messages(messages: Iterable[Wire]) -> list[Wire]:
    """Put the results of calls directly after the message with the calls.

    Guarantee: pure; doing it again changes nothing.

    Args:
        messages: of a request, in order.

    Returns:
        The messages. A call without a result gets one that reports it as unknown; results without a call are left out.
        A result belongs to the nearest earlier call with its id, since ids may be reused; calls of one message that
        share an id are told apart.
    """
    given = list(messages)
    uses, results = _Places(), _Places()
    for place, message in enumerate(resting(given)):
        if message.get("role") == "tool":
            told = message.get("tool_call_id")
            results.add({told, short_id(told)}, place)
        else:
            uses.add({str(call.get("id")) for call in _calls(message)}, place)
    taken: set[int] = set()
    paired: list[Wire] = []
    for place, message in enumerate(resting(given)):
        if message.get("role") == "tool":
            continue
        calls = _calls(message)
        ids = _own_ids(calls)
        paired.append(message if ids == [call.get("id") for call in calls] else _with_ids(message, ids))
        # Results after the next use of one of the ids belong to that call.
        until = min((uses.following(str(call.get("id")), place, len(given)) for call in calls), default=len(given))
        for call, sent in zip(calls, ids, strict=True):
            result = next((at for at in results.between(call.get("id"), place, until) if at not in taken), None)
            if result is None:
                paired.append({"role": "tool", "tool_call_id": sent, "content": LOST_RESULT})
            else:
                taken.add(result)
                paired.append(given[result] | {"tool_call_id": sent})
    return paired


def _own_ids(calls: Sequence[Wire]) -> list[Any]:
    """Return the ids to send for the calls of one message, each once: OpenAI refuses two results of one id."""
    times: Counter[Any] = Counter()
    ids: list[Any] = []
    for known in (call.get("id") for call in calls):
        times[known] += 1
        ids.append(known if times[known] == 1 else "call_" + derived_id(str(known), str(times[known])))
    return ids


def _with_ids(message: Wire, ids: Sequence[Any]) -> Wire:
    return message | {"tool_calls": [call | {"id": sent} for call, sent in zip(_calls(message), ids, strict=True)]}


def named_calls(messages: Iterable[Wire], offered: Collection[str]) -> list[Wire]:
    """Give calls names that OpenAI accepts.

    Guarantee: pure; the messages given are not changed.

    Args:
        messages: of a request, in order.
        offered: names of the request's tools.
    """
    return [_with_names(message, offered) if _calls(message) else message for message in resting(messages)]


def _with_names(message: Wire, offered: Collection[str]) -> Wire:
    return message | {"tool_calls": [_with_name(call, offered) for call in _calls(message)]}


def _with_name(call: Wire, offered: Collection[str]) -> Wire:
    kind = "custom" if "custom" in call else "function"
    told = cast("Wire", call.get(kind) or {"arguments": ""})
    name = accepted_name(told.get("name"), _NAME, offered)
    return call if name == told.get("name") else call | {kind: told | {"name": name}}


class _Places:
    """The positions of ids in a conversation."""

    def __init__(self) -> None:
        self._places: dict[Any, list[int]] = {}

    def add(self, ids: Iterable[Any], place: int) -> None:
        """Record ids at a position that is not before the last one."""
        for one in ids:
            self._places.setdefault(one, []).append(place)

    def following(self, one: Any, place: int, end: int) -> int:
        """Return the first position of an id after a position; the end when there is none."""
        return next(self.between(one, place, end), end)

    def between(self, one: Any, place: int, until: int) -> Iterator[int]:
        """Return the positions of an id between two positions."""
        places = self._places.get(one, [])
        for number in range(bisect_right(places, place), len(places)):
            if places[number] >= until:
                return
            yield places[number]


def _calls(message: Mapping[str, Any]) -> list[Wire]:
    return cast("list[Wire]", message.get("tool_calls") or [])
