"""The practice model's application: the routes of its services, and `/practice/...` for tests to control and read it.

For tests: `/practice/plans` (POST a plan, GET, DELETE), `/practice/requests` (GET, DELETE), and
`/practice/containers/expire` (POST). They need no key.
"""

import secrets
from typing import ClassVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.ids import IdGenerator
from practice_model.exchange import JsonResponse, RequestLog, SharedState
from practice_model.play.plans import Plan, PlanError
from practice_model.play.player import Player
from practice_model.rules.requests import Rules
from practice_model.services.chat_completions import ChatCompletionsService
from practice_model.services.responses import ResponsesService


class PracticeModel:
    """The practice model; `app` is the ASGI application, `responses` the service with OpenAI's routes.

    Args:
        rules: rules enforced on requests.
        seed: seed of the generated ids; random by default, so two runs never share an id.
    """

    plan_class: ClassVar[type[Plan]] = Plan

    def __init__(self, rules: Rules | None = None, seed: str | None = None) -> None:
        self._shared_state = SharedState(IdGenerator(seed or secrets.token_hex(8)), [], RequestLog())
        self.request_log = self._shared_state.request_log
        self.plans = self._shared_state.plans
        self.responses = self.build_responses(self._shared_state, rules or Rules())
        self.store = self.responses.store
        routes = [*self.responses.routes(), *self.other_routes(self._shared_state), *self._control_routes()]
        self.app = Starlette(routes=routes, exception_handlers={Exception: _handle_failure})

    def build_responses(self, shared_state: SharedState, rules: Rules) -> ResponsesService:
        """Make the service of OpenAI's Responses."""
        return ResponsesService(shared_state, rules, Player(shared_state.id_generator, shared_state.plans))

    def other_routes(self, shared_state: SharedState) -> list[Route]:
        """List the routes of the services other than OpenAI's Responses."""
        return ChatCompletionsService(shared_state).routes()

    def _control_routes(self) -> list[Route]:
        return [
            Route("/practice/plans", self.handle_plans, methods=["GET", "POST", "DELETE"]),
            Route("/practice/requests", self.handle_requests, methods=["GET", "DELETE"]),
        ]

    async def handle_plans(self, request: Request) -> JsonResponse:
        """Add a plan, list the plans, or clear them."""
        if request.method == "DELETE":
            self.plans.clear()
        if request.method == "POST":
            try:
                self.plans.append(self.plan_class.parse(await request.json()))
            except (PlanError, ValueError) as error:
                return JsonResponse(HttpError(400, str(error), "practice_plan").body, 400)
        plans = [plan.to_json() for plan in self.plans]
        return JsonResponse({"plans": plans}, 201 if request.method == "POST" else 200)

    async def handle_requests(self, request: Request) -> JsonResponse:
        """List or clear the received requests."""
        if request.method == "DELETE":
            self.request_log.entries.clear()
        return JsonResponse(self.request_log.entries)


async def _handle_failure(_request: Request, error: Exception) -> JsonResponse:
    return JsonResponse(HttpError(500, f"The practice model itself failed: {error!r}", kind="server_error").body, 500)
