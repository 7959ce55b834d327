"""The practice model with the services that only tests and the demo use, and with recorded traffic."""

from pathlib import Path
from typing import ClassVar

from starlette.routing import Route

from practice_model.dialects.responses import event_grammar
from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import ParsedRequest, input_items
from practice_model.exchange import SharedState
from practice_model.play.answer import FakeResponse
from practice_model.play.plans import Plan
from practice_model.rules.requests import Rules
from practice_model.server import PracticeModel
from practice_model.services.responses import ResponsesService
from tests.stand_ins.anthropic.service import AnthropicService
from tests.stand_ins.gemini.service import GeminiService
from tests.stand_ins.recordings import (
    Format,
    RecordedPlan,
    RecordedPlayer,
    RecordedResponse,
    Recordings,
    load_recordings,
)
from tests.stand_ins.threads.service import AgentsService


def _read_transcript(request: Json, earlier_items: list[Json]) -> list[Json] | None:
    if not request.get("input"):
        return None
    is_continuation = request.get("previous_response_id") or request.get("conversation")
    return [*(earlier_items if is_continuation else ()), *input_items(request)]


def _read_events(events: list[Json]) -> Json:
    return next((event["response"] for event in reversed(events) if "response" in event), {"id": None, "output": []})


def _list_items(response: Json, events: list[Json]) -> list[Json]:
    if events:
        return [event["item"] for event in events if event["type"] == "response.output_item.done"]
    return response.get("output") or []


RESPONSES_TRAFFIC = Format(
    "openai-responses", _read_events, _list_items, lambda body: body.get("object") == "response", _read_transcript
)


class StandIns(PracticeModel):
    """The practice model with all services.

    Args:
        recordings: folder of recorded traffic.
        rules: rules enforced on requests of Responses.
        seed: seed of the generated ids.
    """

    plan_class: ClassVar[type[Plan]] = RecordedPlan

    def __init__(
        self,
        recordings: Path | None = None,
        rules: Rules | None = None,
        seed: str | None = None,
    ) -> None:
        self._recordings = recordings
        super().__init__(rules, seed)

    def build_responses(self, shared_state: SharedState, rules: Rules) -> ResponsesService:
        """Make the service with recordings."""
        return RecordedResponsesService(shared_state, rules, load_recordings(self._recordings, RESPONSES_TRAFFIC))

    def other_routes(self, shared_state: SharedState) -> list[Route]:
        """Add Anthropic, Gemini and Azure AI Agents."""
        return [
            *super().other_routes(shared_state),
            *AnthropicService(shared_state, self._recordings).routes(),
            *GeminiService(shared_state, self._recordings).routes(),
            *AgentsService(shared_state).routes(),
        ]


class RecordedResponsesService(ResponsesService):
    """OpenAI's Responses, with recordings."""

    def __init__(self, shared_state: SharedState, rules: Rules, recordings: Recordings) -> None:
        super().__init__(shared_state, rules, RecordedPlayer(shared_state.id_generator, shared_state.plans, recordings))
        self.store.accept_encrypted(recordings.encrypted_values)

    def compose(self, fake_response: FakeResponse, parsed_request: ParsedRequest) -> tuple[Json, list[Json]]:
        """Return a recorded response and its events unchanged."""
        if not isinstance(fake_response, RecordedResponse):
            return super().compose(fake_response, parsed_request)
        version = fake_response.version
        return version.response, version.events or event_grammar.stream_events(version.response)
