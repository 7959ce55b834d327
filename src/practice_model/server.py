"""The practice model's application: the routes of its services, and `/practice/...` for tests to control and read it.

For tests: `/practice/plans` (POST a plan, GET, DELETE), `/practice/requests` (GET, DELETE), `/practice/recordings`
(GET), `/practice/containers/expire` and `/practice/encrypted/expire` (POST). They need no key.
"""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.ids import IdMint
from practice_model.exchange import Shared
from practice_model.json_text import JsonAnswer
from practice_model.play.plans import Plan, PlanError
from practice_model.play.recordings import Recordings
from practice_model.request_log import RequestLog
from practice_model.rules.requests import Rules
from practice_model.services.agents import agents_routes
from practice_model.services.anthropic import anthropic_routes
from practice_model.services.chat_completions import chat_completions_routes
from practice_model.services.gemini import gemini_routes
from practice_model.services.responses import ResponsesService

SERVICES: Final[tuple[Callable[[Shared], list[Route]], ...]] = (
    agents_routes,
    anthropic_routes,
    chat_completions_routes,
    gemini_routes,
)
"""Of each service besides OpenAI's Responses: what makes its routes."""


class PracticeModel:
    """The practice model; `app` is the ASGI application, `responses` the service with the routes of OpenAI.

    Args:
        recordings: recorded Responses traffic to play; None for built-in conversations only.
        rules: enforced on requests.
        requests_file: receives each finished request as a JSON line.
        seed: of the generated ids; random by default, so two runs never share an id.
        recordings_folder: from which the other services play recorded traffic.
    """

    def __init__(
        self,
        recordings: Recordings | None = None,
        rules: Rules | None = None,
        requests_file: Path | None = None,
        seed: str | None = None,
        recordings_folder: Path | None = None,
    ) -> None:
        rules = rules or Rules()
        self._shared = Shared(
            IdMint(seed or secrets.token_hex(8)),
            [],
            RequestLog(requests_file),
            recordings_folder,
            is_strict=rules == Rules.strict(),
        )
        self.request_log = self._shared.request_log
        self.plans = self._shared.plans
        self.responses = ResponsesService(self._shared, recordings, rules)
        self.store = self.responses.store
        others = [route for routes in SERVICES for route in routes(self._shared)]
        routes = [*self.responses.routes(), *others, *self._control_routes()]
        self.app = Starlette(routes=routes, exception_handlers={Exception: _failed})

    def _control_routes(self) -> list[Route]:
        return [
            Route("/practice/plans", self.plan, methods=["GET", "POST", "DELETE"]),
            Route("/practice/requests", self.requests, methods=["GET", "DELETE"]),
        ]

    async def plan(self, request: Request) -> JsonAnswer:
        """Add a plan, list the plans, or clear them."""
        if request.method == "DELETE":
            self._shared.plans.clear()
        if request.method == "POST":
            try:
                self._shared.plans.append(Plan.parse(await request.json()))
            except (PlanError, ValueError) as error:
                return JsonAnswer(HttpError(400, str(error), "practice_plan").body, 400)
        shown = [plan.shown() for plan in self._shared.plans]
        return JsonAnswer({"plans": shown}, 201 if request.method == "POST" else 200)

    async def requests(self, request: Request) -> JsonAnswer:
        """List or clear the received requests."""
        if request.method == "DELETE":
            self._shared.request_log.entries.clear()
        return JsonAnswer(self._shared.request_log.entries)


async def _failed(_request: Request, error: Exception) -> JsonAnswer:
    return JsonAnswer(HttpError(500, f"The practice model itself failed: {error!r}", kind="server_error").body, 500)


def create_app(
    recordings: Path | None = None,
    *,
    rules: Rules | None = None,
    requests_file: Path | None = None,
    seed: str | None = None,
) -> Starlette:
    """Return the practice model as an ASGI application, for a server or a test client.

    Args:
        recordings: folder of recorded traffic.
        rules: by default those observed on the live API.
        requests_file: receives finished requests as JSON lines.
        seed: for reproducible ids; random by default.

    Raises:
        RecordingsError: the folder is missing or empty.
    """
    loaded = Recordings.load(recordings) if recordings else None
    return PracticeModel(loaded, rules, requests_file, seed, recordings).app
