"""Merges the deltas of a stream into the message that the service would have sent without streaming.

Theory of operation. A delta has fields of the message, each with its next fragment. Texts are joined, objects are
merged field by field, list elements by ``index`` and type. Identifying fields (``type``, ``id``) are not joined:
services repeat them. Tool calls have their own rules, as services number, name and identify them in many ways.

Source: openai-python 3.54, `lib/streaming/_deltas.py`; the pages on streams of OpenRouter, DeepSeek, Mistral and vLLM.
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from durable_agent_host.codec.strict_json import object_at
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.response_normalization import with_text_names
from durable_agent_host.providers.event_normalization import json_text

_NAMES: Final = frozenset({"type", "id", "index", "format", "role", "name", "object", "mime_type", "media_type"})
"""Fields with texts that are not streamed in fragments."""

_REPEATABLE_LISTS: Final = frozenset({"annotations", "citations", "images", "search_results"})
"""Lists of complete elements, which some services repeat in every delta."""

_REPLACED_LISTS: Final = frozenset({"executed_tools"})
"""Lists of elements with an index, which come again with more fields: each time whole, and not in fragments."""

_TYPES_MERGED_WITHOUT_INDEX: Final = frozenset({"reasoning.text", "reasoning.summary", "text", "thinking"})


class _Fragments(list[str]):
    """An unfinished text."""


class MessageAccumulator:
    """The message of one choice as its deltas arrive.

    Args:
        seed: from which the missing ids of calls are derived.
    """

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._fields: dict[str, Any] = {"role": "assistant", "content": None}
        self._content: _Fragments | None = None
        self._calls: list[dict[str, Any]] = []
        self._by_index: dict[Any, int] = {}
        self._published_ids: dict[int, str] = {}

    def add_text(self, text: str) -> None:
        """Add a delta that has only a fragment of the content."""
        if type(self._fields["content"]) is list:
            if text:
                _merge(self._fields, "content", [{"type": "text", "text": text}])
            return
        if self._content is None:
            self._content = _Fragments()
            self._fields["content"] = self._content
        self._content.append(text)

    def add(self, delta: Mapping[str, Any]) -> list[tuple[int, bool]]:
        """Add a delta.

        Returns:
            For each of the delta's tool calls, the index of the call and whether it only repeats the call's arguments.
        """
        calls: list[tuple[int, bool]] = []
        for name, value in delta.items():
            if name == "content" and isinstance(value, str):
                self.add_text(value)
            elif name == "content" and isinstance(value, list):
                if self._content is not None:
                    earlier_text = "".join(self._content)
                    self._content, self._fields["content"] = None, []
                    self.add_text(earlier_text)
                _merge(self._fields, name, value)
            elif name == "tool_calls" and isinstance(value, list):
                calls = [self._add_call(call_delta) for call_delta in cast("list[dict[str, Any]]", value)]
            else:
                _merge(self._fields, name, value)
        return calls

    def call_id(self, call_index: int) -> str:
        """Return the id of a call; one without an id from the service gets a deterministic one.

        The id does not change if the service sends another one later: clients have already received this one.
        """
        initial_id = self._calls[call_index].get("id") or "call_" + derived_id(self._seed, str(call_index))
        return self._published_ids.setdefault(call_index, str(initial_id))

    def message(self) -> dict[str, Any]:
        """Return the message so far, without fields that are null, except the content."""
        fields = {name: _plain(value) for name, value in self._fields.items() if value is not None or name == "content"}
        if (audio := object_at(fields, "audio")).get("data"):
            fields["audio"] = audio | {"data": _merge_base64(audio["data"])}
        calls = [_complete_call(_plain(call), self.call_id(index)) for index, call in enumerate(self._calls)]
        return fields | ({"tool_calls": calls} if calls else {})

    def _add_call(self, call_delta: Mapping[str, Any]) -> tuple[int, bool]:
        index = call_delta.get("index")
        call_index = len(self._calls) - 1 if index is None else self._by_index.get(index, -1)
        if call_index < 0 or self._starts_new_call(self._calls[call_index], call_delta):
            self._calls.append({})
            call_index = len(self._calls) - 1
        if index is not None:
            self._by_index[index] = call_index
        call = self._calls[call_index]
        is_repeat = _repeats_arguments(_get_function(call), _get_function(call_delta))
        for name, value in with_text_names(call_delta).items():
            if name in {"function", "custom"} and isinstance(value, Mapping):
                function = cast("dict[str, Any]", call.setdefault(name, {}))
                for inner, part in with_text_names(cast("Mapping[str, Any]", value)).items():
                    if not (is_repeat and inner == "arguments"):
                        _merge_function(function, inner, part)
            elif name != "index":
                _merge(call, name, value)
        return call_index, is_repeat

    def _starts_new_call(self, call: Mapping[str, Any], call_delta: Mapping[str, Any]) -> bool:
        """Return whether a delta starts another call at the index of an earlier one: some services always use 0."""
        name = _get_function(call_delta).get("name")
        if not name or not _get_function(call).get("name"):
            return False
        delta_id = call_delta.get("id")
        call_id = call.get("id")
        if delta_id and call_id and delta_id != call_id:
            return True
        return not (delta_id and call_id) and _is_complete(_plain(_get_function(call).get("arguments")))


def _complete_call(call: Mapping[str, Any], call_id: str) -> dict[str, Any]:
    """Write a call as the API requires it."""
    other_fields = {
        name: value for name, value in call.items() if name not in {"index", "id", "type"} and value is not None
    }
    complete_call = {"id": call_id, "type": call.get("type") or "function", **other_fields}
    if function := object_at(call.get("function")):
        complete_call["function"] = {"name": "", **function, "arguments": json_text(function.get("arguments"))}
    return complete_call


def _get_function(call: Mapping[str, Any]) -> Mapping[str, Any]:
    return object_at(call.get("function") or call.get("custom"))


def _repeats_arguments(function: Mapping[str, Any], delta: Mapping[str, Any]) -> bool:
    """Return whether a delta has all arguments again: some services end a call with the whole."""
    fragment = delta.get("arguments")
    if not isinstance(fragment, str) or not fragment.startswith("{") or not fragment.endswith("}"):
        return False
    return _plain(function.get("arguments")) == fragment and _is_complete(fragment)


def _is_complete(arguments: Any) -> bool:
    if not isinstance(arguments, str):
        return bool(arguments)
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return False
    return True


def _merge_function(function: dict[str, Any], name: str, value: Any) -> None:
    """Merge a field; names may be sent in full, repeatedly, or in fragments."""
    current_name = function.get(name)
    if name == "name" and isinstance(current_name, str) and isinstance(value, str):
        function[name] = current_name if value == current_name else current_name + value
    else:
        _merge(function, name, value)


def _merge(target: dict[str, Any], name: str, value: Any) -> None:
    current_value = target.get(name)
    if value is None:
        target.setdefault(name, None)
    elif isinstance(value, str) and name not in _NAMES:
        if not isinstance(current_value, _Fragments):
            current_value = target[name] = _Fragments()
        current_value.append(value)
    elif isinstance(value, Mapping):
        nested_target = target[name] = object_at(current_value)
        for inner, part in cast("Mapping[str, Any]", value).items():
            _merge(nested_target, inner, part)
    elif isinstance(value, list):
        elements = target[name] = cast("list[Any]", current_value) if type(current_value) is list else []
        for element in cast("list[Any]", value):
            if name in _REPLACED_LISTS and (same := _find_by_index(elements, element)) is not None:
                same.update(element)
            else:
                _merge_element(elements, element, is_repeated=name in _REPEATABLE_LISTS)
    elif value != "" or current_value is None:
        target[name] = value


def _merge_element(elements: list[Any], element: Any, *, is_repeated: bool) -> None:
    if is_repeated and any(_plain(candidate) == element for candidate in elements):
        return
    if not isinstance(element, Mapping):
        elements.append(element)
        return
    element_delta = cast("Mapping[str, Any]", element)
    candidates = [cast("dict[str, Any]", candidate) for candidate in elements if isinstance(candidate, dict)]
    target = next(
        (candidate for candidate in reversed(candidates) if _continues_element(candidate, element_delta)), None
    )
    if target is not None and element_delta.get("index") is None and target is not elements[-1]:
        target = None
    if target is None:
        target = {}
        elements.append(target)
    for name, value in element_delta.items():
        _merge(target, name, value)


def _find_by_index(elements: Sequence[Any], element: Any) -> dict[str, Any] | None:
    same = (candidate for candidate in elements if object_at(candidate).get("index") == object_at(element).get("index"))
    return next(same, None)


def _continues_element(element: Mapping[str, Any], delta: Mapping[str, Any]) -> bool:
    """Return whether a delta belongs to a list element: the same index, and no other type or id."""
    index = delta.get("index")
    if element.get("index") != index:
        return False
    if any(element.get(name) and delta.get(name) and element[name] != delta[name] for name in ("type", "id")):
        return False
    return index is not None or delta.get("type") in _TYPES_MERGED_WITHOUT_INDEX


def _merge_base64(text: str) -> str:
    """Join consecutive base64 texts, each with its own padding."""
    if "=" not in text.rstrip("="):
        return text
    try:
        data = b"".join(base64.b64decode(chunk + "=" * (-len(chunk) % 4)) for chunk in text.split("=") if chunk)
    except binascii.Error:
        return text
    return base64.b64encode(data).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, _Fragments):
        return "".join(value)
    if isinstance(value, dict):
        return {name: _plain(element) for name, element in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_plain(element) for element in cast("list[Any]", value)]
    return value
