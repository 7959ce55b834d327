"""Function calls derived from a user's sentence and the offered tools.

Pure. Three readings, tried in this order: `call NAME with {json}`; a tool's whole name in the text; every word of a
tool's name in the text (`get_weather` ← "the weather in Oslo"). Quoted values fill string
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
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?")
_SMALL_WORDS = frozenset({"get", "set", "the", "do", "run", "make", "find", "fetch", "lookup", "tool"})
_LOOKS_BACK = re.compile(
    r"\b(earlier|before|previous(ly)?|so far|remember|did (i|you|we|it)|have (i|you|we)|was|were)\b",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    r"^\s*(what|which|who|whose|how|why|when|where|do|does|is|are|can|could)\b|\?\s*$", re.IGNORECASE
)


@dataclass(frozen=True)
class Call:
    """A function call to make."""

    name: str
    arguments: Json


def looks_back(text: str) -> bool:
    """Return whether a sentence, without its quotes, asks about earlier turns."""
    return bool(_LOOKS_BACK.search(_QUOTED.sub(" ", text)))


def is_question(text: str) -> bool:
    """Return whether a sentence is a question."""
    return bool(_QUESTION.search(text))


def derive_calls(text: str, functions: Mapping[str, Json]) -> list[Call]:
    """Return the calls that the sentence requests, in its order; empty without a tool's name.

    Guarantee: pure.

    Args:
        text: the user's message.
        functions: tool name → JSON schema of its parameters.
    """
    explicit = _explicit_calls(text, functions)
    if explicit:
        return explicit
    if looks_back(text):
        return []
    mentions = _mentions(text, functions)
    calls: list[Call] = []
    for number, (start, name) in enumerate(mentions):
        end = mentions[number + 1][0] if number + 1 < len(mentions) else len(text)
        calls.append(Call(name, _arguments(functions[name], text[start:end], text)))
    return calls


def _explicit_calls(text: str, functions: Mapping[str, Json]) -> list[Call]:
    calls: list[Call] = []
    for found in _EXPLICIT.finditer(text):
        try:
            arguments, _ = json.JSONDecoder().raw_decode(text, found.end())
        except json.JSONDecodeError:
            continue
        if found["name"] in functions:
            calls.append(Call(found["name"], cast("Json", arguments)))
    return calls


def _mentions(text: str, functions: Mapping[str, Json]) -> list[tuple[int, str]]:
    bare = _QUOTED.sub(lambda found: "\0" * len(found[0]), text)
    whole = [
        (found.start(), name)
        for name in functions
        for found in re.finditer(rf"(?<![\w-]){re.escape(name)}(?![\w-])", bare, re.IGNORECASE)
    ]
    if whole:
        return sorted(whole)
    return sorted((place, name) for name in functions if (place := _words_place(name, bare)) is not None)


def _words_place(name: str, text: str) -> int | None:
    words = [word for word in re.split(r"[\W_]+", name.lower()) if word and word not in _SMALL_WORDS]
    places = [re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) for word in words]
    found = [place.start() for place in places if place]
    return min(found) if found and len(found) == len(words) else None


def _arguments(schema: Json, part: str, text: str) -> Json:
    properties = cast("dict[str, Json]", schema.get("properties") or {})
    required = cast("list[str]", schema.get("required") or list(properties))
    texts = _quoted(part) or _quoted(text)
    numbers = _numbers(part) or _numbers(text)
    arguments: Json = {}
    for name, shape in properties.items():
        value = _value(shape, texts, numbers)
        if value is None and name in required:
            value = _fallback(shape, part)
        if value is not None:
            arguments[name] = value
    return arguments


def _quoted(text: str) -> list[str]:
    return [next(group for group in found.groups() if group is not None) for found in _QUOTED.finditer(text)]


def _numbers(text: str) -> list[float | int]:
    bare = _QUOTED.sub(" ", text)
    return [float(number) if "." in number else int(number) for number in _NUMBER.findall(bare)]


def _value(shape: Json, texts: list[str], numbers: list[float | int]) -> Any:
    kind = _kind(shape)
    if kind == "string" and texts and "enum" not in shape:
        return texts.pop(0)
    if kind in {"integer", "number"} and numbers:
        return numbers.pop(0)
    return None


def _kind(shape: Json) -> str:
    kind: Any = shape.get("type")
    options: Sequence[Any] = [option.get("type") for option in cast("list[Json]", shape.get("anyOf") or [])]
    options = [*options, *(cast("list[Any]", kind) if isinstance(kind, list) else [kind])]
    return str(next((option for option in options if option not in {None, "null"}), "string"))


def _fallback(shape: Json, part: str) -> Any:
    """Return a value of the right type for a required parameter without a value in the sentence."""
    if shape.get("enum"):
        return cast("list[Any]", shape["enum"])[0]
    rest = re.sub(r"^\S+\s*(?:(?:in|for|of|with|the|to|at|about)\s+)*", "", part).strip(" .!?:,")
    blanks: dict[str, Any] = {"integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}
    return blanks.get(_kind(shape), rest or "practice")
