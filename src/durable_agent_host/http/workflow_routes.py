"""Upstream's own routes, those of workflows: they pass the gate, too.

A workflow run has no document to name its owner, so its id does: the id that the caller gives or receives is followed
by a mark derived from the caller and a secret of the app. Whoever names a run gets their own mark: for them, somebody
else's run does not exist, and the answer is upstream's own, after the same reads. Nobody can compute the id of somebody
else's run, and the workflow's agents have sessions of that id.

The durable client writes ids into URLs unescaped, so ids are checked first: after a ``?`` or ``#`` the mark would not
be part of the path, and an escape would be decoded.

Upstream's functions take bodies of any size, pass on what the durable store says of a failed run, with the stacks of
the functions that failed, and raise what its client raises. The routes limit bodies, leave the stacks out, and answer
with problems.
"""

import json
import uuid
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import azure.functions as func
from azurefunctions.extensions.http.fastapi import Response

from durable_agent_host.codec.strict_json import encode_strict
from durable_agent_host.durable.turn_client import ClientFor, TurnClient
from durable_agent_host.errors import RegistrationError, RequestError
from durable_agent_host.http.gate import Action, Authorizer
from durable_agent_host.http.parse import BodyLimit, parse_json, parse_json_or_text
from durable_agent_host.http.problem_details import problem
from durable_agent_host.http.request_handling import RouteRequest
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.principal import Owner
from durable_agent_host.turn.error_texts import failure_reason

_ACTIONS: Final[Mapping[str, Action]] = {
    "run": "workflow.run",
    "status": "workflow.read",
    "respond": "workflow.respond",
}
"""Second part of ``workflow/{name}/…`` → what it does. Source: agent-framework-azurefunctions 1.0.0b260922."""

_PREFIX: Final = "workflow/"
_RUN_ID: Final = "runId"
INSTANCE_ID: Final = "instanceId"
_REQUEST_ID: Final = "requestId"
_NOT_IN_IDS: Final = frozenset("/\\#?")
"""Characters that upstream refuses in a run id, and the Durable extension in an instance id."""
_MARK_CHARACTERS: Final = 24
_MOST_CHARACTERS: Final = 100
"""Maximum length of an instance id. Source: ``TaskHubClient`` of the Durable extension; upstream checks it, too."""

_AT_WORK: Final = "the run {!r} has not ended: follow it by its status, or start another one under another runId"
_FAILED: Final = "Failed"
"""Upstream's name for the status of a failed run."""


class WorkflowRequest(NamedTuple):
    """What a request asks for.

    Attributes:
        query: parameters.
        path: the values of the route, by name.
        body: empty when it was not read.
    """

    query: Mapping[str, str]
    path: Mapping[str, str]
    body: bytes = b""


CallUpstream = Callable[[WorkflowRequest], Awaitable[func.HttpResponse]]


def run_of(owner: Owner, run_id: str, secret: str) -> str:
    """Name a workflow's run as its owner's. Idempotent."""
    bare, _, mark = run_id.rpartition(".")
    if bare and mark == _mark(owner, bare, secret):
        return run_id
    return f"{run_id}.{_mark(owner, run_id, secret)}"


def _mark(owner: Owner, run_id: str, secret: str) -> str:
    return derived_id("workflow-run", owner.tenant, owner.principal, run_id, secret)[:_MARK_CHARACTERS]


def can_be_named(ids_by_name: Mapping[str, str], *names: str) -> bool:
    """Return whether ids stay unchanged in a URL."""
    ids = [ids_by_name[name] for name in names if name in ids_by_name]
    return all(
        _NOT_IN_IDS.isdisjoint(id_text) and id_text.strip(". ") and unquote(id_text) == id_text for id_text in ids
    )


def _new_run(owner: Owner, requested_id: str, secret: str) -> str:
    """Name a run that a caller starts."""
    if len(stored_id := run_of(owner, requested_id, secret)) > _MOST_CHARACTERS:
        max_characters = _MOST_CHARACTERS - _MARK_CHARACTERS - 1
        raise RequestError(
            f"runId has {len(requested_id)} characters, and {max_characters} are allowed: the host adds some"
        )
    return stored_id


def _without_stacks(answer: func.HttpResponse) -> func.HttpResponse | Response:
    """Return upstream's answer, a refusal as a problem; where it shows a failed run, with the reason alone."""
    body = answer.get_body()
    if answer.status_code >= HTTPStatus.BAD_REQUEST:
        return problem(HTTPStatus(answer.status_code), json.loads(body)["error"])
    status: Any = json.loads(body) if f'"{_FAILED}"'.encode() in body else {}
    if status.get("runtimeStatus") != _FAILED:
        return answer
    status |= {name: failure_reason(str(status[name])) for name in ("output", "error") if status.get(name) is not None}
    return func.HttpResponse(encode_strict(status), status_code=answer.status_code, mimetype=answer.mimetype)


async def find_run(turns: TurnClient, workflow: str, run_id: str, action: Action) -> str:
    """Return the id of the run that a caller means: where the run is somebody else's, that of the caller's own."""
    access = turns.context.access
    if (owner := access.owner) is None:
        return run_id
    stored_id = run_of(owner, run_id, await turns.claims.id_secret())
    if stored_id == run_id or await access.can_access(workflow, run_id, None, exists=False, action=action):
        return run_id
    return stored_id


class WorkflowRoute:
    """A route of upstream's.

    Args:
        template: the route's, after the host's prefix.
        gate: checks the caller.
        limit: of the body.

    Attributes:
        gate: checks the caller.

    Raises:
        RegistrationError: this version does not know the route or what it does.
    """

    def __init__(self, template: str, gate: Authorizer, limit: BodyLimit) -> None:
        self._name, _, action_path = template.removeprefix(_PREFIX).partition("/")
        action = _ACTIONS.get(action_path.partition("/")[0])
        if not template.startswith(_PREFIX) or action is None:
            raise RegistrationError(
                f"the route {template!r} of agent-framework-azurefunctions is not known here: install the "
                "version of requirements.txt"
            )
        self._action: Action = action
        self.gate = gate
        self._limit = limit

    async def serve(
        self, call: RouteRequest, workflow_request: WorkflowRequest, upstream: CallUpstream, client_for: ClientFor
    ) -> func.HttpResponse | Response:
        """Answer a request by upstream's function.

        Raises:
            DurableAgentHostError: what the gate raises, or the request cannot be carried out.
            ClientDisconnect: the client disconnected.
        """
        turns = client_for(await self.gate.identify(call.incoming, self._action))
        authorized_request = await self._enter(workflow_request, turns)
        await call.read_body(self._limit, self.gate.arriving)
        authorized_request = authorized_request._replace(body=call.body)
        try:
            marked_request = await self._mark(authorized_request, turns)
        except RecursionError:
            raise RequestError("the body is JSON that is nested too deeply") from None
        try:
            answer = await upstream(marked_request)
        except Exception:  # the SDK has no type for a run that cannot be started
            run_id = (
                authorized_request.query[_RUN_ID]
                if self._action == "workflow.run" and _RUN_ID in workflow_request.query
                else ""
            )
            if not run_id:
                raise
            if await turns.is_at_work(run_id):
                return problem(HTTPStatus.CONFLICT, _AT_WORK.format(run_id))
            answer = await upstream(marked_request)  # it may just have ended
        return _without_stacks(answer)

    async def _enter(self, workflow_request: WorkflowRequest, turns: TurnClient) -> WorkflowRequest:
        """Return what the request names for its caller; raises what the gate raises."""
        query = workflow_request.query
        path = workflow_request.path
        if self._action == "workflow.run" and not can_be_named(query, _RUN_ID):
            raise RequestError(f"runId is {query[_RUN_ID]!r}: use letters, digits, '-', '_', '.', ':' and the like")
        if not can_be_named(path, INSTANCE_ID, _REQUEST_ID):
            path = {**path, INSTANCE_ID: uuid.uuid4().hex}  # there is no such run
        owner = turns.context.access.owner
        if self._action == "workflow.run":
            run_id = query.get(_RUN_ID) or uuid.uuid4().hex
            if owner is not None:
                run_id = _new_run(owner, run_id, await turns.claims.id_secret())
            return WorkflowRequest({**query, _RUN_ID: run_id}, path)
        if owner is None:
            return WorkflowRequest(query, path)
        run_id = await find_run(turns, self._name, path.get(INSTANCE_ID, ""), self._action)
        return WorkflowRequest(query, {**path, INSTANCE_ID: run_id})

    async def _mark(self, request: WorkflowRequest, turns: TurnClient) -> WorkflowRequest:
        """Check the body, and mark that of a start, which upstream passes on, as the app's."""
        if self._action == "workflow.respond":
            parse_json(request.body)
        if self._action != "workflow.run" or not request.body:
            return request
        value = parse_json_or_text(request.body)
        marked_input = await turns.mark_workflow_input(self._name, request.query[_RUN_ID], value)
        return request._replace(body=json.dumps(marked_input).encode())
