"""The routes as a table: name, method, path, action for the gate, and handler. The host adds its prefix."""

from typing import Final

from durable_agent_host.http import (
    answer_routes,
    app_routes,
    file_routes,
    model_call_routes,
    session_routes,
    turn_routes,
)
from durable_agent_host.http.request_handling import Route

_SESSION: Final = "agents/{agent}/sessions/{session}"
_FILE: Final = _SESSION + "/files/{file}"
_TURN: Final = _SESSION + "/turns/{turn}"

ROUTES: Final = (
    Route("http-run", "POST", "agents/{agent}/run", "turn.run", turn_routes.run, body_kind="form"),
    Route("http-agents", "GET", "agents", "agents.list", app_routes.list_agents),
    Route("http-metrics", "GET", "metrics", "metrics.read", app_routes.metrics),
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
    Route("http-answers", "POST", _TURN + "/answers", "turn.answer", answer_routes.submit, accepts_token=True),
    Route(
        "http-callback",
        "POST",
        "callbacks/{token}",
        "turn.answer",
        answer_routes.submit_callback,
        accepts_token=True,
        is_open=True,
    ),
    Route("http-pending", "GET", "pending", "turn.answer", answer_routes.list_pending),
    Route(
        "http-workflow-answers",
        "POST",
        "workflow/{workflow}/respond/{run}",
        "workflow.respond",
        answer_routes.answer_run,
    ),
    Route("http-health", "GET", "health", "health.read", app_routes.health, is_health=True),
)
