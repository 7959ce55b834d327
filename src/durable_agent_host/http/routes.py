"""The routes as a table: name, method, path, action for the gate, and handler. The host adds its prefix."""

from typing import Final, Literal, NamedTuple

import azure.functions as func

from durable_agent_host.durable.turn_client import TurnClient
from durable_agent_host.http import (
    agent_routes,
    approval_routes,
    file_routes,
    model_call_routes,
    session_routes,
    turn_routes,
)
from durable_agent_host.http.body_parsing import MAX_UPLOAD, BodyLimit
from durable_agent_host.http.gate import Action
from durable_agent_host.http.request_handling import Answer, Handler, HandlerContext, serve
from durable_agent_host.settings import Settings


class Route(NamedTuple):
    """One route.

    Attributes:
        name: of the function that serves it.
        method: HTTP method.
        template: path after the prefix.
        action: what the gate checks.
        handler: answers requests that pass the gate.
        is_health: open to everyone, and part of the app even without HTTP endpoints for agents.
        streams_body: the handler reads the body piece by piece.
        body_kind: ``form`` when a form with files may exceed the usual limit, ``file`` when every body may.
        may_begin: the request may begin the session on the path, and reads its body after checking that.
    """

    name: str
    method: str
    template: str
    action: Action
    handler: Handler
    is_health: bool = False
    streams_body: bool = False
    body_kind: Literal["json", "form", "file"] = "json"
    may_begin: bool = False

    def body_limit(self, settings: Settings) -> BodyLimit:
        """Return the largest body that is read; larger ones are answered with 413."""
        if self.method in {"GET", "HEAD", "DELETE"} or self.streams_body:
            return BodyLimit(0)
        if self.body_kind == "file":
            return BodyLimit(settings.max_upload_bytes, setting=MAX_UPLOAD)
        forms = max(settings.max_upload_bytes, settings.max_request_bytes) if self.body_kind == "form" else 0
        return BodyLimit(settings.max_request_bytes, forms)

    async def serve(self, host: HandlerContext, req: func.HttpRequest, client: TurnClient) -> Answer:
        """Answer a request; see `durable_agent_host.http.request_handling.serve`."""
        limit = self.body_limit(host.settings)
        return await serve(
            self.action,
            self.handler,
            host,
            req,
            client,
            limit=limit,
            is_open=self.is_health,
            may_begin=self.may_begin,
        )


_SESSION: Final = "agents/{agent}/sessions/{session}"
_FILE: Final = _SESSION + "/files/{file}"
_TURN: Final = _SESSION + "/turns/{turn}"

ROUTES: Final = (
    Route("http-run", "POST", "agents/{agent}/run", "turn.run", turn_routes.run, body_kind="form"),
    Route("http-agents", "GET", "agents", "agents.list", agent_routes.list_agents),
    Route("http-metrics", "GET", "metrics", "metrics.read", agent_routes.metrics),
    Route("http-session", "GET", _SESSION, "session.read", session_routes.read_session),
    Route("http-sessions", "GET", "agents/{agent}/sessions", "sessions.list", session_routes.list_sessions),
    Route("http-export", "GET", _SESSION + "/export", "session.export", session_routes.export_session),
    Route(
        "http-import",
        "POST",
        _SESSION + "/import",
        "session.import",
        session_routes.import_session,
        streams_body=True,
        may_begin=True,
    ),
    Route("http-verify", "GET", _SESSION + "/verify", "session.verify", session_routes.verify_session),
    Route("http-repair", "POST", _SESSION + "/repair", "session.repair", session_routes.repair_session),
    Route("http-fork", "POST", _SESSION + "/fork", "session.fork", session_routes.fork_session),
    Route("http-context-reset", "POST", _SESSION + "/context/reset", "session.reset", session_routes.reset_context),
    Route("http-delete", "DELETE", _SESSION, "session.delete", session_routes.delete_session),
    Route("http-files", "GET", _SESSION + "/files", "files.read", file_routes.list_files),
    Route(
        "http-upload",
        "POST",
        _SESSION + "/files",
        "files.add",
        file_routes.upload_files,
        body_kind="file",
        may_begin=True,
    ),
    Route("http-file", "GET", _FILE, "files.read", file_routes.read_file),
    Route("http-file-head", "HEAD", _FILE, "files.read", file_routes.read_file),
    Route("http-turn", "GET", _TURN, "turn.read", turn_routes.read_turn),
    Route("http-steps", "GET", _TURN + "/steps", "turn.read", turn_routes.read_steps),
    Route("http-calls", "GET", _TURN + "/calls", "calls.read", model_call_routes.list_calls),
    Route("http-call", "GET", _TURN + "/calls/{call}", "calls.read", model_call_routes.read_call),
    Route("http-call-body", "GET", _TURN + "/calls/{call}/{body}", "calls.read", model_call_routes.read_body),
    Route("http-turn-test", "GET", _TURN + "/test", "calls.read", model_call_routes.read_test),
    Route("http-events", "GET", _TURN + "/events", "turn.follow", turn_routes.read_events),
    Route("http-cancel", "POST", _TURN + "/cancel", "turn.cancel", turn_routes.cancel_turn),
    Route("http-approvals", "POST", _TURN + "/approvals", "turn.approve", approval_routes.submit_approvals),
    Route("http-health", "GET", "health", "health.read", agent_routes.health, is_health=True),
)
