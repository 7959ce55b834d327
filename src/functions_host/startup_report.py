"""What ``start`` prints about an app: functions and routes, and warnings."""

from collections.abc import Iterable, Sequence

from functions_host.app.bindings import list_unsupported
from functions_host.app.client_binding import MCP_PATH
from functions_host.app.function import AppFunction

_ASYNC_HINTS = {
    "orchestrationTrigger": (
        "Orchestrator function '{}' is async, so all its instances will fail; write it with 'def', and wait for tasks "
        "with 'yield'."
    ),
    "entityTrigger": (
        "Entity function '{}' is async, so none of its operations will do anything; write it with 'def', and leave "
        "what has to be awaited to an activity."
    ),
}


def list_functions(functions: Iterable[AppFunction], origin: str, route_prefix: str) -> str:
    """Return one line per function: HTTP functions first, with methods and URL, then the others with their trigger."""
    sorted_functions = sorted(
        functions, key=lambda function: (function.http is None, function.trigger, function.name.lower())
    )
    return "\n".join(
        f"    {function.name}: {_describe(function, origin, route_prefix)}" for function in sorted_functions
    )


def _describe(function: AppFunction, origin: str, route_prefix: str) -> str:
    if function.http is not None:
        methods = ",".join(sorted(function.http.methods)) or "all methods"
        path = f"{route_prefix}/{function.http.route.lstrip('/')}".lstrip("/")
        return f"[{methods}] {origin}/{path}"
    if function.trigger == "timerTrigger":
        return f"timerTrigger {function.binding.get('schedule')}"
    if function.trigger == "mcpToolTrigger":
        return f"mcpToolTrigger {function.binding.get('toolName')} at {origin}{MCP_PATH}"
    if function.durable_name not in {None, function.name}:
        return f"{function.trigger} {function.durable_name}"
    return function.trigger


def list_oddities(functions: Sequence[AppFunction]) -> list[str]:
    """Return a warning for each definition that loads, but cannot be intended."""
    oddities: list[str] = (
        [] if functions else ["The app has no functions: nothing is registered with it, or all are off."]
    )
    if unsupported := [f"{function.name} ({function.trigger})" for function in functions if not function.is_served]:
        oddities.append(f"This host does not serve: {', '.join(unsupported)}.")
    for function in functions:
        oddities += list_unsupported(function.name, function.bindings) if function.is_served else []
    for function in functions:
        if function.cannot_be_awaited:
            oddities.append(_ASYNC_HINTS[function.trigger].format(function.name))
    return oddities
