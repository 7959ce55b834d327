"""Route templates of ASP.NET Core, as the Functions host uses them.

Guarantee: pure.
Source: spec section 2.1.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import unquote

_PARAMETER = re.compile(
    r"\{(?P<stars>\*{0,2})(?P<name>[^{}:=?]+)(?P<constraints>(?::[^{}=?]*(?:\{[^{}]*\}[^{}=?]*)*)?)"
    r"(?:=(?P<default>[^{}?]*))?(?P<optional>\??)\}"
)
_CONSTRAINT = re.compile(r":([a-zA-Z]+)(?:\(((?:[^()]|\([^()]*\))*)\))?")
_LITERAL_RANK, _CONSTRAINED_RANK, _PLAIN_RANK, _CATCH_ALL_RANK = range(4)


class RouteError(ValueError):
    """A route template that the host does not take."""


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
        """Match a decoded path without its leading slash; returns the route parameters, None if it is not ours."""
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
        RouteError: a constraint that does not exist, or a first segment that belongs to the host.
    """
    pattern, parameters, rank = "", list[_Parameter](), list[int]()
    for index, segment in enumerate(part for part in text.strip("/").split("/") if part):
        if index == 0 and segment.lower() in {"admin", "runtime"}:
            raise RouteError(f"the route {text!r} starts with {segment!r}, which belongs to the host")
        piece, found, segment_rank = _compile_segment(segment, len(parameters))
        may_be_absent = len(found) == 1 and _PARAMETER.fullmatch(segment) is not None and _may_be_absent(found[0])
        separator = "/" if index else ""
        pattern += f"(?:{separator}{piece})?" if may_be_absent else separator + piece
        parameters += found
        rank.append(segment_rank)
    return Template(text, re.compile(pattern, re.IGNORECASE | re.DOTALL), tuple(parameters), tuple(rank))


def _may_be_absent(parameter: _Parameter) -> bool:
    return parameter.optional or parameter.default is not None or parameter.catch_all


def _compile_segment(segment: str, first: int) -> tuple[str, list[_Parameter], int]:
    pattern, parameters, position = "", list[_Parameter](), 0
    for match in _PARAMETER.finditer(segment):
        parameter = _read_parameter(match)
        body = ".*" if parameter.catch_all else "[^/]+"
        pattern += re.escape(segment[position : match.start()]) + f"(?P<p{first + len(parameters)}>{body})"
        parameters.append(parameter)
        position = match.end()
    pattern += re.escape(segment[position:])
    if not parameters:
        return pattern, parameters, _LITERAL_RANK
    if parameters[0].catch_all:
        return pattern, parameters, _CATCH_ALL_RANK
    return pattern, parameters, _CONSTRAINED_RANK if parameters[0].checks else _PLAIN_RANK


def _read_parameter(match: re.Match[str]) -> _Parameter:
    checks = tuple((name.lower(), argument) for name, argument in _CONSTRAINT.findall(match["constraints"]))
    for name, _ in checks:
        if name not in _CHECKS:
            raise RouteError(f"the route constraint {name!r} does not exist")
    return _Parameter(match["name"], checks, match["default"], bool(match["optional"]), bool(match["stars"]))


class RouteTable[Target]:
    """Routes in the order in which they are tried: literals before parameters, catch-alls last."""

    def __init__(self, routes: Iterable[tuple[str, frozenset[str], Target]]) -> None:
        compiled = [(compile_template(text), methods, target) for text, methods, target in routes]
        self._routes = sorted(compiled, key=lambda route: route[0].rank)

    def find(self, method: str, path: str) -> tuple[Target, dict[str, str]] | None:
        """Find the target of a request; the path is percent-encoded."""
        # An encoded slash stays encoded, so that it cannot end a segment.
        decoded = unquote(re.sub("%2f", "%252F", path, flags=re.IGNORECASE)).strip("/")
        for template, methods, target in self._routes:
            if not methods or method in methods:
                values = template.match(decoded)
                if values is not None:
                    return target, values
        return None
