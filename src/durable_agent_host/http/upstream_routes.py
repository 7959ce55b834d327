"""Upstream's own routes, those of workflows: they pass the gate, too.

A workflow run has no document to name its owner, so its id does: the id that the caller gives or receives is followed
by a mark derived from the caller and a secret of the app. Whoever names a run gets their own mark: for them, somebody
else's run does not exist, and the answer is upstream's own, after the same reads. Nobody can compute the id of somebody
else's run, and the workflow's agents have sessions of that id.

The durable client writes ids into URLs unescaped, so ids are checked first: after a ``?`` or ``#`` the mark would not
be part of the path, and an escape would be decoded.
"""

import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import unquote

from durable_agent_host.errors import RegistrationError, RequestError
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
_REQUEST_ID: Final = "requestId"
_NOT_IN_IDS: Final = frozenset("/\\#?")
"""Characters that upstream refuses in a run id, and the Durable extension in an instance id."""
_MARK_CHARACTERS: Final = 24
_MOST_CHARACTERS: Final = 100
"""Maximum length of an instance id. Source: ``TaskHubClient`` of the Durable extension; upstream checks it, too."""

Named = tuple[Mapping[str, str], Mapping[str, str]]
"""What a request names: query parameters, and route values."""

ReadSecret = Callable[[], Awaitable[str]]
"""Reads the secret that makes marks unforgeable; see `durable_agent_host.durable.id_secret`."""

Entrance = Callable[[IncomingRequest, Mapping[str, str], Mapping[str, str], ReadSecret], Awaitable[Named]]


def run_of(owner: Owner, run_id: str, secret: str) -> str:
    """Name a workflow's run as its owner's. Guarantee: pure; a name that it returned stays as it is.

    Args:
        owner: of the run.
        run_id: the caller's name for it.
        secret: of the app.
    """
    bare, _, mark = run_id.rpartition(".")
    if bare and mark == _mark(owner, bare, secret):
        return run_id
    return f"{run_id}.{_mark(owner, run_id, secret)}"


def _mark(owner: Owner, run_id: str, *secret: str) -> str:
    return derived_id("workflow-run", owner.tenant, owner.principal, run_id, *secret)[:_MARK_CHARACTERS]


def _is_of_before(owner: Owner, run_id: str) -> bool:
    """Return whether an earlier version, whose marks had no secret, named the run as its owner's."""
    bare, _, mark = run_id.rpartition(".")
    return bool(bare) and mark == _mark(owner, bare)


def _can_be_named(given: Mapping[str, str], *names: str) -> bool:
    """Return whether ids stay unchanged in a URL."""
    named = [given[name] for name in names if name in given]
    return all(_NOT_IN_IDS.isdisjoint(one) and one.strip(". ") and unquote(one) == one for one in named)


def _new_run(owner: Owner, query: Mapping[str, str], secret: str) -> str:
    """Name a run that a caller starts.

    Raises:
        RequestError: the caller's id is too long to add the mark.
    """
    asked = query.get(_RUN_ID) or uuid.uuid4().hex
    if len(own := run_of(owner, asked, secret)) > _MOST_CHARACTERS:
        most = _MOST_CHARACTERS - _MARK_CHARACTERS - 1
        raise RequestError(f"runId has {len(asked)} characters, and {most} are allowed: the host adds some")
    return own


def workflow_entrance(template: str, gate: Gate) -> Entrance:
    """Make the check that a route of upstream's passes first.

    Args:
        template: the route's, after the host's prefix.
        gate: checks the caller.

    Returns:
        A function that returns what the request names for its caller, and raises what the gate raises.

    Raises:
        RegistrationError: this version does not know the route or what it does.
    """
    name, _, rest = template.removeprefix(_PREFIX).partition("/")
    action = _ACTIONS.get(rest.partition("/")[0])
    if not template.startswith(_PREFIX) or action is None:
        raise RegistrationError(
            f"the route {template!r} of agent-framework-azurefunctions is not known here: install the version "
            "of requirements.txt"
        )

    async def enter(
        request: IncomingRequest, query: Mapping[str, str], path: Mapping[str, str], read_secret: ReadSecret
    ) -> Named:
        principal = (await gate.identify(request)).principal
        if action == "workflow.run" and not _can_be_named(query, _RUN_ID):
            raise RequestError(f"runId is {query[_RUN_ID]!r}: use letters, digits, '-', '_', '.', ':' and the like")
        if not _can_be_named(path, _INSTANCE_ID, _REQUEST_ID):
            path = {**path, _INSTANCE_ID: uuid.uuid4().hex}  # there is no such run
        if principal is None:
            return query, path
        owner, secret = principal.owner, await read_secret()
        if action == "workflow.run":
            return {**query, _RUN_ID: _new_run(owner, query, secret)}, path
        asked = path.get(_INSTANCE_ID, "")
        own = asked if _is_of_before(owner, asked) else run_of(owner, asked, secret)
        if own != asked and await gate.authorized(principal, action, AskedSession(name, asked, None)):
            own = asked
        return query, {**path, _INSTANCE_ID: own}

    return enter
