"""Upstream's own routes, those of workflows: they pass the gate, too."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, cast

import azure.functions as func

from durable_agent_host.errors import RegistrationError
from durable_agent_host.http.gate import Action, Gate, SessionName

_ACTIONS: Final[Mapping[str, Action]] = {
    "run": "workflow.run",
    "status": "workflow.read",
    "respond": "workflow.respond",
}
"""Second part of ``workflow/{name}/…`` → what it does. Source: agent-framework-azurefunctions 1.0.0b260922."""

_PREFIX: Final = "workflow/"

Entrance = Callable[[func.HttpRequest], Awaitable[None]]


def workflow_entrance(template: str, gate: Gate) -> Entrance:
    """Make what a route of upstream's asks before it does anything.

    Args:
        template: the route's, after the host's prefix.
        gate: decides.

    Returns:
        A function that raises what the gate raises.

    Raises:
        RegistrationError: this version does not know the route, so nobody has said what it does.
    """
    name, _, rest = template.removeprefix(_PREFIX).partition("/")
    action = _ACTIONS.get(rest.partition("/")[0])
    if not template.startswith(_PREFIX) or action is None:
        raise RegistrationError(
            f"the route {template!r} of agent-framework-azurefunctions is not known here: install the version "
            "of requirements.txt"
        )

    async def enter(req: func.HttpRequest) -> None:
        run = str(req.route_params.get("instanceId") or "") or None
        await gate.enter(action, cast("Mapping[str, str]", req.headers), SessionName(name, run))

    return enter
