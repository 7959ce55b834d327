"""Upstream's own routes, those of workflows: they pass the gate, too.

A run of a workflow has no document that could name its owner, so its id does: the id that the caller gives or is given,
and behind it a mark that follows from the caller. Whoever names a run gets the mark of himself: a run of somebody else
does not exist for him, and the answer is upstream's own, after the same reads.
"""

import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from durable_agent_host.errors import RegistrationError
from durable_agent_host.http.gate import Action, AskedSession, Gate, IncomingRequest
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.principal import Owner

_ACTIONS: Final[Mapping[str, Action]] = {
    "run": "workflow.run",
    "status": "workflow.read",
    "respond": "workflow.respond",
}
"""Second part of ``workflow/{name}/…`` → what it does. Source: agent-framework-azurefunctions 1.0.0b260922."""

_PREFIX: Final = "workflow/"
_RUN_ID: Final = "runId"
_INSTANCE_ID: Final = "instanceId"
_MARK_CHARACTERS: Final = 24

Named = tuple[Mapping[str, str], Mapping[str, str]]
"""What a request names: parameters of the query, and values of the route."""

Entrance = Callable[[IncomingRequest, Mapping[str, str], Mapping[str, str]], Awaitable[Named]]


def run_of(owner: Owner, run_id: str) -> str:
    """Name a workflow's run as its owner's. Guarantee: pure; a name that it gave stays as it is.

    Args:
        owner: to whom the run belongs.
        run_id: as the caller names it.
    """
    bare, _, mark = run_id.rpartition(".")
    if bare and mark == _mark(owner, bare):
        return run_id
    return f"{run_id}.{_mark(owner, run_id)}"


def _mark(owner: Owner, run_id: str) -> str:
    return derived_id("workflow-run", owner.tenant, owner.principal, run_id)[:_MARK_CHARACTERS]


def workflow_entrance(template: str, gate: Gate) -> Entrance:
    """Make what a route of upstream's asks before it does anything.

    Args:
        template: the route's, after the host's prefix.
        gate: decides.

    Returns:
        A function that gives what the request names for its caller, and raises what the gate raises.

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

    async def enter(request: IncomingRequest, query: Mapping[str, str], path: Mapping[str, str]) -> Named:
        principal = (await gate.identify(request)).principal
        if principal is None:
            return query, path
        if action == "workflow.run":
            return {**query, _RUN_ID: run_of(principal.owner, query.get(_RUN_ID) or uuid.uuid4().hex)}, path
        asked = path.get(_INSTANCE_ID, "")
        own = run_of(principal.owner, asked)
        if own != asked and await gate.authorized(principal, action, AskedSession(name, asked, None)):
            own = asked
        return query, {**path, _INSTANCE_ID: own}

    return enter
