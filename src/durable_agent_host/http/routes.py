"""The routes as a table: name, method, path, action for the gate, and handler. The host adds its prefix."""

from typing import Final, Literal, NamedTuple

import azure.functions as func

from durable_agent_host.durable.turn_client import TurnClient
from durable_agent_host.http import agents, approvals, files, sent_calls, sessions, steps, turns
from durable_agent_host.http.bodies import MAX_UPLOAD, BodyLimit
from durable_agent_host.http.calls import Answer, Handler, Host, serve
from durable_agent_host.http.gate import Action
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
        takes: ``form`` when a form with files may exceed the usual limit, ``file`` when every body may.
        may_begin: the request may begin the session on the path, and reads its body after checking that.
    """

    name: str
    method: str
    template: str
    action: Action
    handler: Handler
    is_health: bool = False
    streams_body: bool = False
    takes: Literal["json", "form", "file"] = "json"
    may_begin: bool = False

    def body_limit(self, settings: Settings) -> BodyLimit:
        """Return the largest body that is read; larger ones are answered with 413.

        Args:
            settings: of the app.
        """
        if self.method in {"GET", "HEAD", "DELETE"} or self.streams_body:
            return BodyLimit(0)
        if self.takes == "file":
            return BodyLimit(settings.max_upload_bytes, setting=MAX_UPLOAD)
        forms = max(settings.max_upload_bytes, settings.max_request_bytes) if self.takes == "form" else 0
        return BodyLimit(settings.max_request_bytes, forms)

    async def serve(self, host: Host, req: func.HttpRequest, client: TurnClient) -> Answer:
        """Answer a request; see `durable_agent_host.http.calls.serve`."""
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
    Route("http-run", "POST", "agents/{agent}/run", "turn.run", turns.run, takes="form"),
    Route("http-agents", "GET", "agents", "agents.list", agents.list_agents),
    Route("http-metrics", "GET", "metrics", "metrics.read", agents.metrics),
    Route("http-session", "GET", _SESSION, "session.read", sessions.read_session),
    Route("http-sessions", "GET", "agents/{agent}/sessions", "sessions.list", sessions.list_sessions),
    Route("http-export", "GET", _SESSION + "/export", "session.export", sessions.export_session),
    Route(
        "http-import",
        "POST",
        _SESSION + "/import",
        "session.import",
        sessions.import_session,
        streams_body=True,
        may_begin=True,
    ),
    Route("http-verify", "GET", _SESSION + "/verify", "session.verify", sessions.verify_session),
    Route("http-repair", "POST", _SESSION + "/repair", "session.repair", sessions.repair_session),
    Route("http-fork", "POST", _SESSION + "/fork", "session.fork", sessions.fork_session),
    Route("http-context-reset", "POST", _SESSION + "/context/reset", "session.reset", sessions.reset_context),
    Route("http-delete", "DELETE", _SESSION, "session.delete", sessions.delete_session),
    Route("http-files", "GET", _SESSION + "/files", "files.read", files.list_files),
    Route("http-upload", "POST", _SESSION + "/files", "files.add", files.upload_files, takes="file", may_begin=True),
    Route("http-file", "GET", _FILE, "files.read", files.read_file),
    Route("http-file-head", "HEAD", _FILE, "files.read", files.read_file),
    Route("http-turn", "GET", _TURN, "turn.read", turns.read_turn),
    Route("http-steps", "GET", _TURN + "/steps", "turn.read", steps.read_steps),
    Route("http-calls", "GET", _TURN + "/calls", "calls.read", sent_calls.list_calls),
    Route("http-call", "GET", _TURN + "/calls/{call}", "calls.read", sent_calls.read_call),
    Route("http-call-body", "GET", _TURN + "/calls/{call}/{body}", "calls.read", sent_calls.read_body),
    Route("http-turn-test", "GET", _TURN + "/test", "calls.read", sent_calls.read_test),
    Route("http-events", "GET", _TURN + "/events", "turn.follow", turns.read_events),
    Route("http-cancel", "POST", _TURN + "/cancel", "turn.cancel", turns.cancel_turn),
    Route("http-approvals", "POST", _TURN + "/approvals", "turn.approve", approvals.answer_approvals),
    Route("http-health", "GET", "health", "health.read", agents.health, is_health=True),
)
