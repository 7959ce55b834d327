"""Function calls derived from a user's sentence and the available tools.

Two patterns, tried in this order: `call NAME with {json}`, and a tool's name in the text. Quoted values fill string
parameters, numbers fill numeric ones, in order. Each mention uses the values of its part of the sentence, or of the
whole sentence if the part has none ("add and multiply the number 2 and 3").
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from practice_model.dialects.responses.items import Json

_EXPLICIT = re.compile(r"(?<![\w-])(?P<name>[\w-]+)\s+with\s+(?=\{)")
_QUOTED = re.compile(r"\"([^\"]*)\"|(?<!\w)'((?:[^']|(?<=\w)'(?=\w))*)'(?!\w)|“([^”]*)”|‘([^’]*)’")  # noqa: RUF001
_NUMERAL = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?")
_HISTORY_PATTERN = re.compile(
    r"\b(earlier|before|previous(ly)?|so far|remember|did (i|you|we|it)|have (i|you|we)|was|were)\b",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    r"^\s*(what|which|who|whose|how|why|when|where|do|does|is|are|can|could)\b|\?\s*$", re.IGNORECASE
)


@dataclass(frozen=True)
class Call:
    """A derived function call."""

    name: str
    arguments: Json


def refers_to_history(text: str) -> bool:
    """Return whether a sentence, without its quotes, asks about earlier turns."""
    return bool(_HISTORY_PATTERN.search(_QUOTED.sub(" ", text)))


def is_question(text: str) -> bool:
    """Return whether a sentence is a question."""
    return bool(_QUESTION.search(text))


def derive_calls(text: str, functions: Mapping[str, Json]) -> list[Call]:
    """Return the calls that the sentence requests, in its order; empty without a tool's name."""
    explicit_calls = _parse_explicit_calls(text, functions)
    if explicit_calls:
        return explicit_calls
    if refers_to_history(text):
        return []
    mentions = _find_mentions(text, functions)
    calls: list[Call] = []
    for index, (start, name) in enumerate(mentions):
        end = mentions[index + 1][0] if index + 1 < len(mentions) else len(text)
        calls.append(Call(name, _build_arguments(functions[name], text[start:end], text)))
    return calls


def _parse_explicit_calls(text: str, functions: Mapping[str, Json]) -> list[Call]:
    calls: list[Call] = []
    for match in _EXPLICIT.finditer(text):
        try:
            arguments, _ = json.JSONDecoder().raw_decode(text, match.end())
        except json.JSONDecodeError:
            continue
        if match["name"] in functions:
            calls.append(Call(match["name"], cast("Json", arguments)))
    return calls


def _find_mentions(text: str, functions: Mapping[str, Json]) -> list[tuple[int, str]]:
    unquoted_text = _QUOTED.sub(lambda match: "\0" * len(match[0]), text)
    return sorted(
        (match.start(), name)
        for name in functions
        for match in re.finditer(rf"(?<![\w-]){re.escape(name)}(?![\w-])", unquoted_text, re.IGNORECASE)
    )


def _build_arguments(schema: Json, part: str, text: str) -> Json:
    properties = cast("dict[str, Json]", schema.get("properties") or {})
    required_names = cast("list[str]", schema.get("required") or list(properties))
    texts = _find_quoted_texts(part) or _find_quoted_texts(text)
    numerals = _find_numerals(part) or _find_numerals(text)
    arguments: Json = {}
    for name, property_schema in properties.items():
        value = _take_value(property_schema, texts, numerals)
        if value is None and name in required_names:
            value = _build_default(property_schema, part)
        if value is not None:
            arguments[name] = value
    return arguments


def _find_quoted_texts(text: str) -> list[str]:
    return [next(group for group in match.groups() if group is not None) for match in _QUOTED.finditer(text)]


def _find_numerals(text: str) -> list[float | int]:
    unquoted_text = _QUOTED.sub(" ", text)
    return [float(numeral) if "." in numeral else int(numeral) for numeral in _NUMERAL.findall(unquoted_text)]


def _take_value(value_schema: Json, texts: list[str], numerals: list[float | int]) -> Any:
    json_type = _get_json_type(value_schema)
    if json_type == "string" and texts and "enum" not in value_schema:
        return texts.pop(0)
    if json_type in {"integer", "number"} and numerals:
        return numerals.pop(0)
    return None


def _get_json_type(value_schema: Json) -> str:
    json_type: Any = value_schema.get("type")
    options: Sequence[Any] = [option.get("type") for option in cast("list[Json]", value_schema.get("anyOf") or [])]
    options = [*options, *(cast("list[Any]", json_type) if isinstance(json_type, list) else [json_type])]
    return str(next((option for option in options if option not in {None, "null"}), "string"))


def _build_default(value_schema: Json, part: str) -> Any:
    """Return a value of the right type for a required parameter without a value in the sentence."""
    if value_schema.get("enum"):
        return cast("list[Any]", value_schema["enum"])[0]
    remaining_text = re.sub(r"^\S+\s*(?:(?:in|for|of|with|the|to|at|about)\s+)*", "", part).strip(" .!?:,")
    default_values: dict[str, Any] = {"integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}
    return default_values.get(_get_json_type(value_schema), remaining_text or "practice")
