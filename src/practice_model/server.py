"""The practice model's application: the routes of its services, and `/practice/...` for tests to control and read it.

For tests: `/practice/plans` (POST a plan, GET, DELETE), `/practice/requests` (GET, DELETE), and
`/practice/containers/expire` (POST). They need no key.
"""

import secrets
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.ids import IdGenerator
from practice_model.exchange import JsonResponse, RequestLog, SharedState
from practice_model.play.plans import Plan, PlanError
from practice_model.play.recordings import Recordings
from practice_model.rules.requests import Rules
from practice_model.services.agents import AgentsService
from practice_model.services.anthropic import AnthropicService
from practice_model.services.chat_completions import ChatCompletionsService
from practice_model.services.gemini import GeminiService
from practice_model.services.responses import ResponsesService

SERVICES: Final = (AgentsService, AnthropicService, ChatCompletionsService, GeminiService)
"""The services other than OpenAI's Responses."""


class PracticeModel:
    """The practice model; `app` is the ASGI application, `responses` the service with OpenAI's routes.

    Args:
        recordings: recorded Responses traffic to replay; None for built-in conversations only.
        rules: rules enforced on requests.
        requests_file: receives each finished request as a JSON line.
        seed: seed of the generated ids; random by default, so two runs never share an id.
        recordings_folder: folder from which the other services replay recorded traffic.
    """

    def __init__(
        self,
        recordings: Recordings | None = None,
        rules: Rules | None = None,
        requests_file: Path | None = None,
        seed: str | None = None,
        recordings_folder: Path | None = None,
    ) -> None:
        self._shared_state = SharedState(
            IdGenerator(seed or secrets.token_hex(8)),
            [],
            RequestLog(requests_file),
            recordings_folder,
        )
        self.request_log = self._shared_state.request_log
        self.plans = self._shared_state.plans
        self.responses = ResponsesService(self._shared_state, recordings, rules or Rules())
        self.store = self.responses.store
        other_routes = [route for service in SERVICES for route in service(self._shared_state).routes()]
        routes = [*self.responses.routes(), *other_routes, *self._control_routes()]
        self.app = Starlette(routes=routes, exception_handlers={Exception: _handle_failure})

    def _control_routes(self) -> list[Route]:
        return [
            Route("/practice/plans", self.handle_plans, methods=["GET", "POST", "DELETE"]),
            Route("/practice/requests", self.handle_requests, methods=["GET", "DELETE"]),
        ]

    async def handle_plans(self, request: Request) -> JsonResponse:
        """Add a plan, list the plans, or clear them."""
        if request.method == "DELETE":
            self._shared_state.plans.clear()
        if request.method == "POST":
            try:
                self._shared_state.plans.append(Plan.parse(await request.json()))
            except (PlanError, ValueError) as error:
                return JsonResponse(HttpError(400, str(error), "practice_plan").body, 400)
        plans = [plan.to_json() for plan in self._shared_state.plans]
        return JsonResponse({"plans": plans}, 201 if request.method == "POST" else 200)

    async def handle_requests(self, request: Request) -> JsonResponse:
        """List or clear the received requests."""
        if request.method == "DELETE":
            self._shared_state.request_log.entries.clear()
        return JsonResponse(self._shared_state.request_log.entries)


async def _handle_failure(_request: Request, error: Exception) -> JsonResponse:
    return JsonResponse(HttpError(500, f"The practice model itself failed: {error!r}", kind="server_error").body, 500)


def create_app(recordings: Path | None = None, *, seed: str | None = None) -> Starlette:
    """Return the practice model as an ASGI application, for a server or a test client.

    Args:
        recordings: folder of recorded traffic.
        seed: for reproducible ids; random by default.

    Raises:
        RecordingsError: the folder is missing or empty.
    """
    loaded_recordings = Recordings.load(recordings) if recordings else None
    return PracticeModel(loaded_recordings, seed=seed, recordings_folder=recordings).app
