"""The routes as a table: name, method, path, action for the gate, handler, and what goes in and out.

The host adds its prefix. `durable_agent_host.http.api_document` describes the API from this table.
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Final, Literal

from pydantic import Field

from durable_agent_host.http import (
    answer_routes,
    app_routes,
    file_routes,
    session_routes,
    turn_routes,
)
from durable_agent_host.http import response_types as types
from durable_agent_host.http.parse import FORM, MAX_LIMIT
from durable_agent_host.http.request_handling import Parameter, Route
from durable_agent_host.http.sse import CONTENT_TYPE as EVENTS
from durable_agent_host.turn.model_call_reader import ModelCallListWire, ModelCallWire
from durable_agent_host.turn.step_types import StepPageWire
from durable_agent_host.turn.turn_events import NESTED, RunAnswerWire

_SESSION: Final = "agents/{agent}/sessions/{session}"
_FILE: Final = _SESSION + "/files/{file}"
_TURN: Final = _SESSION + "/turns/{turn}"

_ANY: Final = "*/*"
_TEXT: Final = "text/plain"
_OK: Final = HTTPStatus.OK
_ACCEPTED: Final = HTTPStatus.ACCEPTED
_CREATED: Final = HTTPStatus.CREATED

_LIMIT: Final = Parameter("limit", Annotated[int, Field(ge=1, le=MAX_LIMIT)], "How many the page has at most.")
_CURSOR: Final = Parameter("cursor", str, "Where the page before ended.")
_POSITION: Final = Parameter("cursor", Annotated[int, Field(ge=0)], "Where the page before ended.")
_INNER: Final = Parameter(NESTED, bool, "Whether the stream has the events of agents within the agent.")
_LAST_EVENT: Final = Parameter(
    "Last-Event-ID",
    Annotated[int, Field(ge=0)],
    "The last event that the client has.",
    "header",
)
_ETAG: Final = Parameter("If-None-Match", str, "The entity tag of the file that the client has.", "header")

ROUTES: Final = (
    Route(
        "http-run",
        "POST",
        "agents/{agent}/run",
        "turn.run",
        turn_routes.run,
        {
            _OK: (RunAnswerWire, _TEXT, EVENTS),
            _ACCEPTED: (types.AcceptedTurnWire, types.WaitingTurnWire, types.QueuedTurnWire),
            HTTPStatus.NO_CONTENT: (),
        },
        problems=(402, 409, 410, 415, 422, 502, 504),
        parameters=(
            Parameter("session_id", str, "The session; without one, a new session begins."),
            Parameter("thread_id", str, "The same, for older clients."),
            Parameter("wait_for_response", bool, "False answers 202 as soon as the turn is admitted."),
            _INNER,
            Parameter("x-ms-wait-for-response", bool, "The same as wait_for_response.", "header"),
            Parameter("Idempotency-Key", str, "The same key and body are the same turn.", "header"),
            _LAST_EVENT,
        ),
        bodies=(types.RunRequestWire, _TEXT, FORM),
        body_kind="form",
    ),
    Route("http-agents", "GET", "agents", "agents.list", app_routes.list_agents, {_OK: (types.AgentsWire,)}),
    Route(
        "http-session",
        "GET",
        _SESSION,
        "session.read",
        session_routes.read_session,
        {_OK: (types.ConversationWire,)},
        parameters=(_LIMIT, _POSITION, Parameter("state", bool, "Whether the page has the session's `state`.")),
    ),
    Route(
        "http-sessions",
        "GET",
        "agents/{agent}/sessions",
        "sessions.list",
        session_routes.list_sessions,
        {_OK: (types.SessionPageWire,)},
        parameters=(
            _LIMIT,
            _CURSOR,
            Parameter("search", str, "Finds sessions whose id has this text."),
            Parameter("used_from", str, "Finds sessions that were last used at or after this time, ISO-8601."),
            Parameter("status", str, "Finds sessions in one of these states, separated by commas."),
            Parameter("details", bool, "Whether each session has its details."),
        ),
    ),
    Route(
        "http-export",
        "GET",
        _SESSION + "/export",
        "session.export",
        session_routes.export_session,
        {_OK: (session_routes.JSON_LINES,)},
        problems=(501,),
    ),
    Route(
        "http-import",
        "POST",
        _SESSION + "/import",
        "session.import",
        session_routes.import_session,
        {_CREATED: (types.ImportedSessionWire,)},
        bodies=("application/octet-stream",),
        streams_body=True,
        problems=(501,),
        may_begin=True,
    ),
    Route(
        "http-verify",
        "GET",
        _SESSION + "/verify",
        "session.verify",
        session_routes.verify_session,
        {_OK: (types.VerifiedSessionWire,)},
    ),
    Route(
        "http-repair",
        "POST",
        _SESSION + "/repair",
        "session.repair",
        session_routes.repair_session,
        {_OK: (types.RepairedSessionWire,)},
    ),
    Route(
        "http-fork",
        "POST",
        _SESSION + "/fork",
        "session.fork",
        session_routes.fork_session,
        {_CREATED: (types.ForkedSessionWire,)},
        problems=(501,),
        bodies=(types.ForkRequestWire,),
    ),
    Route(
        "http-delete",
        "DELETE",
        _SESSION,
        "session.delete",
        session_routes.delete_session,
        {_OK: (types.DeletedSessionWire,), _ACCEPTED: (types.DeletedSessionWire,)},
        problems=(501, 502),
        parameters=(Parameter("history", Literal["kept"], "Leaves what history providers keep."),),
    ),
    Route(
        "http-files",
        "GET",
        _SESSION + "/files",
        "files.read",
        file_routes.list_files,
        {_OK: (types.FilesWire,)},
        problems=(502,),
    ),
    Route(
        "http-upload",
        "POST",
        _SESSION + "/files",
        "files.add",
        file_routes.upload_files,
        {_CREATED: (types.FilesWire,)},
        parameters=(Parameter("name", str, "The name of a file that is the body."),),
        bodies=(FORM, _ANY),
        body_kind="file",
        may_begin=True,
    ),
    Route(
        "http-file",
        "GET",
        _FILE,
        "files.read",
        file_routes.read_file,
        {_OK: (_ANY,), HTTPStatus.NOT_MODIFIED: ()},
        problems=(502,),
        parameters=(_ETAG,),
    ),
    Route("http-turn", "GET", _TURN, "turn.read", turn_routes.read_turn, {_OK: (types.TurnWire,)}),
    Route(
        "http-steps",
        "GET",
        _TURN + "/steps",
        "turn.read",
        turn_routes.read_steps,
        {_OK: (StepPageWire,)},
        parameters=(_LIMIT, _POSITION),
    ),
    Route(
        "http-calls",
        "GET",
        _TURN + "/calls",
        "calls.read",
        turn_routes.list_calls,
        {_OK: (ModelCallListWire,)},
    ),
    Route(
        "http-call",
        "GET",
        _TURN + "/calls/{call}",
        "calls.read",
        turn_routes.read_call,
        {_OK: (ModelCallWire,)},
    ),
    Route(
        "http-events",
        "GET",
        _TURN + "/events",
        "turn.follow",
        turn_routes.read_events,
        {_OK: (EVENTS,), HTTPStatus.NO_CONTENT: ()},
        parameters=(Parameter("after", Annotated[int, Field(ge=0)], "The same as Last-Event-ID."), _INNER, _LAST_EVENT),
    ),
    Route(
        "http-cancel",
        "POST",
        _TURN + "/cancel",
        "turn.cancel",
        turn_routes.cancel_turn,
        {_OK: (types.CancelledTurnWire,), _ACCEPTED: (types.CancellingTurnWire,)},
    ),
    Route(
        "http-resume",
        "POST",
        _TURN + "/resume",
        "turn.run",
        turn_routes.resume_turn,
        {_ACCEPTED: (types.ResumingTurnWire,)},
        problems=(410,),
    ),
    Route(
        "http-answers",
        "POST",
        _TURN + "/answers",
        "turn.answer",
        answer_routes.submit_replies,
        {_OK: (types.AnsweredTurnWire,), _ACCEPTED: (types.AnsweredTurnWire,)},
        problems=(410,),
        bodies=(
            types.DecisionWire,
            types.ResultWire,
            types.ErrorWire,
            Sequence[types.DecisionWire | types.ResultWire | types.ErrorWire],
        ),
    ),
    Route(
        "http-callback",
        "POST",
        "callbacks/{token}",
        "turn.answer",
        answer_routes.submit_callback,
        {_OK: (types.CallbackWire,), _ACCEPTED: (types.CallbackWire,)},
        problems=(409, 410),
        bodies=(types.CallbackResultWire, types.CallbackErrorWire, types.ProgressRequestWire),
        is_open=True,
    ),
    Route(
        "http-pending",
        "GET",
        "pending",
        "turn.answer",
        answer_routes.list_pending,
        {_OK: (types.PendingPageWire,)},
        parameters=(_CURSOR,),
    ),
    Route(
        "http-workflow-answers",
        "POST",
        "workflow/{workflow}/respond/{run}",
        "workflow.respond",
        answer_routes.answer_run,
        {_OK: (types.AnsweredRunWire,)},
        problems=(409,),
        bodies=(types.ResultWire, Sequence[types.ResultWire]),
        part="workflows",
    ),
    Route(
        "http-health",
        "GET",
        "health",
        "health.read",
        app_routes.health,
        {_OK: (types.HealthWire,), HTTPStatus.SERVICE_UNAVAILABLE: (types.HealthProblemWire,)},
        part="health",
        is_open=True,
    ),
)
