"""Route templates of ASP.NET Core, as in the Functions host.

Guarantee: pure.
Source: ``WebScriptHostHttpRoutesManager.cs`` of azure-functions-host; routing of ASP.NET Core.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import unquote

_PARAMETER = re.compile(
    r"(?P<stars>\*{0,2})(?P<name>[^/{}:=?*]+)(?P<constraints>(?::[^:=?()]*(?:\((?:[^()]|\([^()]*\))*\))?)*)"
    r"(?:=(?P<default>[^?]*))?(?P<optional>\??)"
)
_CONSTRAINT = re.compile(r":([^:=?()]*)(?:\(((?:[^()]|\([^()]*\))*)\))?")
# In a parameter, a brace is written twice.
_TOKEN = re.compile(r"(?P<doubled>\{\{|\}\})|\{(?P<parameter>(?:[^{}]|\{\{|\}\})*)\}|(?P<other>.)", re.DOTALL)
_LITERAL_RANK, _CONSTRAINED_RANK, _PLAIN_RANK, _CATCH_ALL_RANK = range(4)


class RouteError(ValueError):
    """A route template that the host does not accept."""


def _is_number(text: str, bits: int) -> bool:
    return re.fullmatch(r"[+-]?\d+", text) is not None and -(2 ** (bits - 1)) <= int(text) < 2 ** (bits - 1)


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _has_length(text: str, argument: str) -> bool:
    low, _, high = argument.partition(",")
    return int(low) <= len(text) <= int(high or low)


def _in_range(text: str, argument: str) -> bool:
    low, _, high = argument.partition(",")
    return _is_number(text, 64) and int(low) <= int(text) <= int(high)


_GUID = re.compile(r"\{?[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\}?", re.IGNORECASE)
_CHECKS: dict[str, Callable[[str, str], bool]] = {
    "int": lambda text, _: _is_number(text, 32),
    "long": lambda text, _: _is_number(text, 64),
    "guid": lambda text, _: _GUID.fullmatch(text) is not None,
    "bool": lambda text, _: text.lower() in {"true", "false"},
    "alpha": lambda text, _: re.fullmatch(r"[a-zA-Z]*", text) is not None,
    "decimal": lambda text, _: _is_float(text),
    "double": lambda text, _: _is_float(text),
    "float": lambda text, _: _is_float(text),
    "length": _has_length,
    "minlength": lambda text, argument: len(text) >= int(argument),
    "maxlength": lambda text, argument: len(text) <= int(argument),
    "min": lambda text, argument: _is_number(text, 64) and int(text) >= int(argument),
    "max": lambda text, argument: _is_number(text, 64) and int(text) <= int(argument),
    "range": _in_range,
    "regex": lambda text, argument: re.search(argument, text, re.IGNORECASE) is not None,
    "required": lambda text, _: bool(text),
}


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str
    checks: tuple[tuple[str, str], ...]
    default: str | None
    optional: bool
    catch_all: bool


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled route template; lower ``rank`` is tried first."""

    text: str
    pattern: re.Pattern[str]
    parameters: tuple[_Parameter, ...]
    rank: tuple[int, ...]

    def match(self, path: str) -> dict[str, str] | None:
        """Match a decoded path without its leading slash; returns the route parameters, None without a match."""
        found = self.pattern.fullmatch(path)
        if found is None:
            return None
        values: dict[str, str] = {}
        for index, parameter in enumerate(self.parameters):
            value = found[f"p{index}"] or parameter.default
            if value is None:
                if parameter.catch_all:
                    values[parameter.name] = ""
                continue
            if not all(_CHECKS[name](value, argument) for name, argument in parameter.checks):
                return None
            values[parameter.name] = value
        return values


def compile_template(text: str) -> Template:
    """Compile a route template, prefix included.

    Raises:
        RouteError: it is malformed, has an unknown constraint, or begins with a reserved segment.
    """
    pattern = ""
    parameters = list[_Parameter]()
    rank = list[int]()
    segments = _read_segments(text)
    for index, segment in enumerate(segments):
        found = [part for part in segment if isinstance(part, _Parameter)]
        if index == 0 and not found and str(segment[0]).lower() in {"admin", "runtime"}:
            raise RouteError(f"the route {text!r} starts with {segment[0]!r}, which belongs to the host")
        if any(parameter.catch_all for parameter in found) and (len(segment) > 1 or segment is not segments[-1]):
            raise RouteError(f"in the route {text!r} a catch-all parameter is not the last segment")
        fragment = _compile_segment(segment, len(parameters))
        may_be_absent = len(segment) == 1 and len(found) == 1 and _may_be_absent(found[0])
        separator = "/" if index else ""
        pattern += f"(?:{separator}{fragment})?" if may_be_absent else separator + fragment
        parameters += found
        rank.append(_rank(found))
    names = [parameter.name.lower() for parameter in parameters]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise RouteError(f"the route {text!r} has the parameter {twice!r} twice")
    return Template(text, re.compile(pattern, re.IGNORECASE | re.DOTALL), tuple(parameters), tuple(rank))


def _may_be_absent(parameter: _Parameter) -> bool:
    return parameter.optional or parameter.default is not None or parameter.catch_all


def _read_segments(text: str) -> list[list[str | _Parameter]]:
    segments: list[list[str | _Parameter]] = [[]]
    for token in _TOKEN.finditer(text.strip("/")):
        if token["parameter"] is not None:
            segments[-1].append(_read_parameter(text, token["parameter"].replace("{{", "{").replace("}}", "}")))
        elif token[0] == "/":
            segments.append([])
        elif token[0] in {"{", "}"}:
            raise RouteError(
                f"the route {text!r} has a brace without its counterpart; inside a parameter, write '{{{{' and '}}}}'"
            )
        else:
            character = token["other"] or token[0][0]
            literal = segments[-1].pop() if segments[-1] and isinstance(segments[-1][-1], str) else ""
            segments[-1].append(f"{literal}{character}")
    return [segment for segment in segments if segment]


def _compile_segment(segment: list[str | _Parameter], first: int) -> str:
    pattern = ""
    number = first
    for part in segment:
        if isinstance(part, str):
            pattern += re.escape(part)
        else:
            pattern += f"(?P<p{number}>{'.*' if part.catch_all else '[^/]+'})"
            number += 1
    return pattern


def _rank(parameters: list[_Parameter]) -> int:
    if not parameters:
        return _LITERAL_RANK
    if parameters[0].catch_all:
        return _CATCH_ALL_RANK
    return _CONSTRAINED_RANK if parameters[0].checks else _PLAIN_RANK


def _read_parameter(text: str, content: str) -> _Parameter:
    match = _PARAMETER.fullmatch(content)
    if match is None:
        raise RouteError(f"the route {text!r} has a parameter that cannot be read: {content!r}")
    checks = tuple((name.lower(), argument) for name, argument in _CONSTRAINT.findall(match["constraints"]))
    for name, _ in checks:
        if name not in _CHECKS:
            raise RouteError(f"in the route {text!r} the constraint {name!r} does not exist")
    return _Parameter(match["name"], checks, match["default"], bool(match["optional"]), bool(match["stars"]))


class RouteTable[Target]:
    """Routes in matching order: literals before parameters, catch-alls last."""

    def __init__(self, routes: Iterable[tuple[str, frozenset[str], Target]]) -> None:
        compiled_routes = [(compile_template(text), methods, target) for text, methods, target in routes]
        self._routes = sorted(compiled_routes, key=lambda route: route[0].rank)

    def find(self, method: str, path: str) -> tuple[Target, dict[str, str]] | None:
        """Find the target of a request; the path is percent-encoded."""
        decoded_path = _decode(path)
        for template, methods, target in self._routes:
            if not methods or method in methods:
                values = template.match(decoded_path)
                if values is not None:
                    return target, values
        return None


def _decode(path: str) -> str:
    """Decode a path; an encoded slash stays encoded, so that it cannot end a segment."""
    return unquote(re.sub("%2f", "%252F", path, flags=re.IGNORECASE)).strip("/")
