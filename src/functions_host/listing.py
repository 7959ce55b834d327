"""What ``start`` says about an app: its functions with their routes, and its keys."""

from collections.abc import Iterable

from functions_host.app_loader import AppFunction
from functions_host.durable_client import MCP_PATH
from functions_host.keys import Keys


def list_functions(functions: Iterable[AppFunction], origin: str, route_prefix: str) -> str:
    """Write one line per function: HTTP functions first, with methods and URL, then the others with their trigger."""
    ordered = sorted(functions, key=lambda function: (function.http is None, function.trigger, function.name.lower()))
    return "\n".join(f"    {function.name}: {_describe(function, origin, route_prefix)}" for function in ordered)


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
    return function.trigger if function.is_served else f"{function.trigger} (not served by this host)"


def list_keys(keys: Keys) -> str:
    """Write the keys that callers may use, one per line."""
    return (
        f"    master key (everything): {keys.master}\n"
        f"    host key (functions of level FUNCTION): {keys.function}\n"
        f"    system key (Durable Task and MCP endpoints): {keys.system}"
    )
