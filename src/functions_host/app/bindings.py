"""Bindings besides the trigger: which ones this host serves, and errors for the others."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

UNSUPPORTED_KIND = "UnservedBindingError"
"""The ``kind`` of a failure caused by an unserved binding; callers see its message."""
_RETURN = "$return"
_HINT = "use the service's own client in the function, or run the app with func start"


@dataclass(frozen=True, slots=True)
class UnsupportedBinding:
    """An input or output binding that this host does not serve; ``type`` is such as ``queue`` or ``blob``."""

    name: str
    type: str
    is_output: bool

    def __str__(self) -> str:
        """Return its name in messages."""
        kind = "output" if self.is_output else "input"
        return f"the return value ({self.type})" if self.name == _RETURN else f"the {kind} {self.name!r} ({self.type})"


@dataclass(frozen=True, slots=True)
class Bindings:
    """The bindings of a function besides its trigger and its durable clients.

    ``http_output`` is what carries the HTTP response: ``$return`` or a parameter.
    """

    http_output: str | None = None
    unsupported: tuple[UnsupportedBinding, ...] = ()

    @property
    def unsupported_inputs(self) -> tuple[UnsupportedBinding, ...]:
        """Unserved inputs; the function cannot be called without them."""
        return tuple(binding for binding in self.unsupported if not binding.is_output)


def read_bindings(bindings: Iterable[Mapping[str, Any]], trigger: Mapping[str, Any]) -> Bindings:
    """Classify the bindings of a function: the HTTP response, and unserved ones."""
    http_output = None
    unsupported = list[UnsupportedBinding]()
    for binding in bindings:
        kind = str(binding["type"])
        name = str(binding["name"])
        is_output = str(binding.get("direction")).upper() == "OUT"
        if binding is trigger or kind == "durableClient":
            continue
        if is_output and kind.lower() == "http" and trigger["type"] == "httpTrigger":
            http_output = name
        else:
            unsupported.append(UnsupportedBinding(name, kind, is_output))
    return Bindings(http_output, tuple(unsupported))


def unsupported_call_reason(function_name: str, bindings: Bindings) -> str | None:
    """Explain why a function cannot be called here; None when it can."""
    inputs = bindings.unsupported_inputs
    if not inputs:
        return None
    return f"Function {function_name!r} cannot be called: this host does not serve {_join(inputs)}; {_HINT}."


def unsupported_outputs_reason(function_name: str, bindings: Bindings, names: Iterable[str]) -> str | None:
    """Explain which outputs set by a call are not served; None when all are."""
    names = set(names)
    outputs = [binding for binding in bindings.unsupported if binding.is_output and binding.name in names]
    if not outputs:
        return None
    return (
        f"Function {function_name!r} ran, but this host does not serve {_join(outputs)}, so nothing was stored there; "
        f"{_HINT}."
    )


def list_unsupported(function_name: str, bindings: Bindings) -> list[str]:
    """Return the warnings of ``start`` about a function's unserved bindings."""
    sentences: list[str] = []
    if inputs := bindings.unsupported_inputs:
        sentences.append(f"Function {function_name!r}: this host does not serve {_join(inputs)}; every call fails.")
    if outputs := [binding for binding in bindings.unsupported if binding.is_output]:
        sentences.append(
            f"Function {function_name!r}: this host does not serve {_join(outputs)}; a call that sets it fails."
        )
    return sentences


def _join(bindings: Iterable[UnsupportedBinding]) -> str:
    return ", ".join(str(binding) for binding in bindings)
