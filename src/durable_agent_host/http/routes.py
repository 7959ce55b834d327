"""The routes, as a table. The host puts its prefix (``/api``) in front."""

from typing import Final, NamedTuple

from durable_agent_host.http import handlers, interventions, sessions, turns


class Route(NamedTuple):
    """One route.

    Attributes:
        name: of the function that serves it.
        method: HTTP method.
        template: after the prefix.
        handler: what it does.
        is_health: open to everyone, and part of the app even without HTTP endpoints for agents.
        is_bounded: a body over ``max_request_bytes`` is not read to its end.
    """

    name: str
    method: str
    template: str
    handler: handlers.Handler
    is_health: bool = False
    is_bounded: bool = False


ROUTES: Final = (
    Route("http-run", "POST", "agents/{agent}/run", turns.run, is_bounded=True),
    Route("http-agents", "GET", "agents", handlers.list_agents),
    Route("http-session", "GET", "agents/{agent}/sessions/{session}", handlers.read_session),
    Route("http-sessions", "GET", "agents/{agent}/sessions", sessions.list_sessions),
    Route("http-export", "GET", "agents/{agent}/sessions/{session}/export", sessions.export_session),
    Route("http-import", "POST", "agents/{agent}/sessions/{session}/import", sessions.import_session),
    Route("http-verify", "GET", "agents/{agent}/sessions/{session}/verify", sessions.verify_session),
    Route("http-repair", "POST", "agents/{agent}/sessions/{session}/repair", sessions.repair_session),
    Route("http-fork", "POST", "agents/{agent}/sessions/{session}/fork", sessions.fork_session),
    Route("http-delete", "DELETE", "agents/{agent}/sessions/{session}", sessions.delete_session),
    Route("http-turn", "GET", "agents/{agent}/sessions/{session}/turns/{turn}", turns.read_turn),
    Route("http-events", "GET", "agents/{agent}/sessions/{session}/turns/{turn}/events", turns.read_events),
    Route(
        "http-cancel",
        "POST",
        "agents/{agent}/sessions/{session}/turns/{turn}/cancel",
        interventions.cancel_turn,
    ),
    Route(
        "http-approvals",
        "POST",
        "agents/{agent}/sessions/{session}/turns/{turn}/approvals",
        interventions.answer_approvals,
        is_bounded=True,
    ),
    Route("http-health", "GET", "health", handlers.health, is_health=True),
)
