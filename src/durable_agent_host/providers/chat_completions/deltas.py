"""Joins the deltas of a stream into the message that the service would have sent without streaming. Pure; needs no SDK.

Theory of operation. A delta has fields of the message, each with its next piece. Texts are joined, objects are merged
field by field, list elements by ``index`` and type. Identifying fields (``type``, ``id``) are not joined: services
repeat them. Tool calls have their own rules, as services number, name and identify them in many ways.

Source: openai-python 3.54, `lib/streaming/_deltas.py`; the pages on streams of OpenRouter, DeepSeek, Mistral and vLLM.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, cast

from durable_agent_host.model.text_names import with_text_names

_NAMES: Final = frozenset({"type", "id", "index", "format", "role", "name", "object", "mime_type", "media_type"})
"""Fields whose texts do not stream in pieces."""

_REPEATED: Final = frozenset({"annotations", "citations", "images", "search_results"})
"""Lists whose elements are always complete, and which some services repeat in every delta."""

_JOINED_WITHOUT_INDEX: Final = frozenset({"reasoning.text", "reasoning.summary", "text", "thinking"})


class _Pieces(list[str]):
    """An unfinished text."""


class MessageAssembly:
    """The message of one choice as its deltas arrive.

    Args:
        seed: from which ids are derived for calls that the service left without one.
    """

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._fields: dict[str, Any] = {"role": "assistant", "content": None}
        self._content: _Pieces | None = None
        self._calls: list[dict[str, Any]] = []
        self._by_index: dict[Any, int] = {}
        self._told: dict[int, str] = {}

    def add_text(self, text: str) -> None:
        """Add a delta that has only a piece of the content."""
        if self._content is None:
            self._content = _Pieces()
            self._fields["content"] = self._content
        self._content.append(text)

    def add(self, delta: Mapping[str, Any]) -> list[int]:
        """Add a delta.

        Returns:
            The numbers of the calls to which the delta's pieces of calls belong, in order.
        """
        places: list[int] = []
        for name, value in delta.items():
            if name == "content" and isinstance(value, str):
                self.add_text(value)
            elif name == "tool_calls" and isinstance(value, list):
                places = [self._add_call(piece) for piece in cast("list[dict[str, Any]]", value)]
            else:
                _merge(self._fields, name, value)
        return places

    def call_id(self, place: int) -> str:
        """Return the id of a call; one without an id from the service gets a deterministic one.

        It stays the call's even if the service sends another one later: clients already know this one.
        """
        named = self._calls[place].get("id") or derived_call_id(self._seed, place)
        return self._told.setdefault(place, str(named))

    def message(self) -> dict[str, Any]:
        """Return the message so far, without fields that are null, except the content."""
        found = cast("dict[str, Any]", _plain(self._fields))
        if isinstance(audio := found.get("audio"), dict):
            told = cast("dict[str, Any]", audio)
            found["audio"] = told | ({"data": _joined_base64(told["data"])} if told.get("data") else {})
        calls = [call | ({"id": self._told[n]} if n in self._told else {}) for n, call in enumerate(self._calls)]
        return whole_message(found | ({"tool_calls": _plain(calls)} if calls else {}), self._seed)

    def _add_call(self, piece: Mapping[str, Any]) -> int:
        index = piece.get("index")
        place = len(self._calls) - 1 if index is None else self._by_index.get(index, -1)
        if place < 0 or self._begins(self._calls[place], piece):
            self._calls.append({})
            place = len(self._calls) - 1
        if index is not None:
            self._by_index[index] = place
        call = self._calls[place]
        for name, value in with_text_names(piece).items():
            if name in {"function", "custom"} and isinstance(value, Mapping):
                function = cast("dict[str, Any]", call.setdefault(name, {}))
                for inner, part in with_text_names(cast("Mapping[str, Any]", value)).items():
                    _merge_function(function, inner, part)
            elif name != "index":
                _merge(call, name, value)
        return place

    def _begins(self, known: Mapping[str, Any], piece: Mapping[str, Any]) -> bool:
        """Return whether a piece begins another call at the index of a known one: some services always use 0."""
        name = _function_of(piece).get("name")
        if not name or not _function_of(known).get("name"):
            return False
        theirs, mine = piece.get("id"), known.get("id")
        if theirs and mine and theirs != mine:
            return True
        return not (theirs and mine) and _is_whole(_plain(_function_of(known).get("arguments")))


def whole_message(message: Mapping[str, Any], seed: str) -> dict[str, Any]:
    """Write a message with calls as the API requires them, without fields that are null, except the content.

    Guarantee: pure; doing it again changes nothing.

    Args:
        message: from the service.
        seed: unique to the answer and the choice; missing ids are derived from it.
    """
    said = {name: value for name, value in message.items() if value is not None or name == "content"}
    calls = cast("list[dict[str, Any]]", said.pop("tool_calls", None) or [])
    whole = [_whole_call(call, seed, place) for place, call in enumerate(calls)]
    return {"role": "assistant", "content": None, **said} | ({"tool_calls": whole} if whole else {})


def _whole_call(call: Mapping[str, Any], seed: str, place: int) -> dict[str, Any]:
    call = with_text_names(call)
    named = {name: value for name, value in call.items() if name not in {"index", "id", "type"} and value is not None}
    whole = {"id": call.get("id") or derived_call_id(seed, place), "type": call.get("type") or "function", **named}
    if isinstance(found := whole.get("function"), dict):
        function: dict[str, Any] = {"name": "", "arguments": "", **with_text_names(cast("dict[str, Any]", found))}
        arguments = function["arguments"]
        as_text = arguments if isinstance(arguments, str) else json.dumps(arguments) if arguments is not None else ""
        whole["function"] = function | {"arguments": as_text}
    return whole


def derived_call_id(seed: str, place: int) -> str:
    """Make the id of a call that the service left without one. Guarantee: pure.

    Args:
        seed: unique to the answer.
        place: of the call in it, from 0.
    """
    return "call_" + hashlib.sha256(f"{seed}:{place}".encode()).hexdigest()[:24]


def _function_of(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function: Any = call.get("function") or call.get("custom")
    return cast("Mapping[str, Any]", function) if isinstance(function, Mapping) else {}


def _is_whole(arguments: Any) -> bool:
    if not isinstance(arguments, str):
        return bool(arguments)
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return False
    return True


def _merge_function(function: dict[str, Any], name: str, value: Any) -> None:
    """Names may be sent whole, repeatedly, or in pieces."""
    known = function.get(name)
    if name == "name" and isinstance(known, str) and isinstance(value, str):
        function[name] = known if value == known else known + value
    else:
        _merge(function, name, value)


def _merge(known: dict[str, Any], name: str, value: Any) -> None:
    before = known.get(name)
    if value is None:
        known.setdefault(name, None)
    elif isinstance(value, str) and name not in _NAMES:
        if not isinstance(before, _Pieces):
            before = known[name] = _Pieces()
        before.append(value)
    elif isinstance(value, Mapping):
        into = known[name] = cast("dict[str, Any]", before) if isinstance(before, dict) else {}
        for inner, part in cast("Mapping[str, Any]", value).items():
            _merge(into, inner, part)
    elif isinstance(value, list):
        elements = known[name] = cast("list[Any]", before) if isinstance(before, list) else []
        for element in cast("list[Any]", value):
            _merge_element(elements, element, is_repeated=name in _REPEATED)
    elif value != "" or before is None:
        known[name] = value


def _merge_element(elements: list[Any], element: Any, *, is_repeated: bool) -> None:
    if is_repeated and any(_plain(one) == element for one in elements):
        return
    if not isinstance(element, Mapping):
        elements.append(element)
        return
    piece = cast("Mapping[str, Any]", element)
    known = [cast("dict[str, Any]", one) for one in elements if isinstance(one, dict)]
    into = next((one for one in reversed(known) if _goes_on(one, piece)), None)
    if into is not None and piece.get("index") is None and into is not elements[-1]:
        into = None
    if into is None:
        into = {}
        elements.append(into)
    for name, value in piece.items():
        _merge(into, name, value)


def _goes_on(known: Mapping[str, Any], piece: Mapping[str, Any]) -> bool:
    """Return whether a piece belongs to a list element: the same index, and no other type or id."""
    index = piece.get("index")
    if known.get("index") != index:
        return False
    if any(known.get(name) and piece.get(name) and known[name] != piece[name] for name in ("type", "id")):
        return False
    return index is not None or piece.get("type") in _JOINED_WITHOUT_INDEX


def _joined_base64(pieces: str) -> str:
    """Join consecutive base64 texts, each with its own padding."""
    if "=" not in pieces.rstrip("="):
        return pieces
    try:
        whole = b"".join(base64.b64decode(one + "=" * (-len(one) % 4)) for one in pieces.split("=") if one)
    except binascii.Error:
        return pieces
    return base64.b64encode(whole).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, _Pieces):
        return "".join(value)
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_plain(one) for one in cast("list[Any]", value)]
    return value
