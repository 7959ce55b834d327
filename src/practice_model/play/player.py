"""Chooses the response: from a plan, or derived from the request."""

from dataclasses import dataclass, field
from functools import cache
from itertools import chain

from practice_model.dialects.responses import items
from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.ids import IdGenerator
from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import ParsedRequest, ToolResult, get_item_type
from practice_model.play import analyst, derived_calls, plans
from practice_model.play.answer import FakeResponse
from practice_model.play.plans import Plan

REASONING_MODELS = "practice-reasoning"
"""Name prefix of the models that reason before they respond."""

MAX_QUOTED_CHARACTERS = 16_384
"""Longest text that a response quotes completely; a model does not repeat megabytes either."""
EXCERPT_CHARACTERS = 200
"""Characters quoted of a longer text."""


@dataclass
class Player:
    """Responds from plans first, then from the request itself."""

    id_generator: IdGenerator
    plans: list[Plan] = field(default_factory=list[Plan])

    def respond(self, parsed_request: ParsedRequest) -> FakeResponse | HttpError:
        """Respond to a valid request."""
        plan = next((plan for plan in self.plans if plan.matches(parsed_request)), None)
        if plan is None:
            return self.improvise(parsed_request)
        return self.play_step(plan.next_step(parsed_request), parsed_request)

    def play_step(self, step: Json, parsed_request: ParsedRequest) -> FakeResponse | HttpError:
        """Respond with a step of a plan."""
        return plans.run_step(
            step, parsed_request, self.id_generator, cache(lambda: self._get_container(parsed_request))
        )

    def improvise(self, parsed_request: ParsedRequest) -> FakeResponse:
        """Respond to what the request says."""
        return FakeResponse(self._think(self._derive_items(parsed_request), parsed_request))

    def _derive_items(self, parsed_request: ParsedRequest) -> list[Json]:
        results = parsed_request.get_results(parsed_request.since_user)
        if results:
            return [items.build_message(self.id_generator, summarize_results(results, parsed_request))]
        functions = {} if parsed_request.body.get("tool_choice") == "none" else parsed_request.functions
        calls = derived_calls.derive_calls(parsed_request.user_text, functions)
        if calls:
            return [items.build_function_call(self.id_generator, call.name, call.arguments) for call in calls]
        if needs_analysis(parsed_request):
            includes_outputs = parsed_request.includes("code_interpreter_call.outputs")
            container_id = self._get_container(parsed_request)
            return analyst.analyse(
                self.id_generator, parsed_request.user_text, container_id, include_outputs=includes_outputs
            )
        return [items.build_message(self.id_generator, summarize_history(parsed_request))]

    def _think(self, output: list[Json], parsed_request: ParsedRequest) -> list[Json]:
        """Add reasoning before the items that models think about, if this model reasons.

        Parallel calls share one reasoning item, code runs and messages have their own, as on the live API.
        """
        if not parsed_request.model.startswith(REASONING_MODELS):
            return output
        is_encrypted = parsed_request.includes("reasoning.encrypted_content")
        items_with_reasoning: list[Json] = []
        for item in output:
            if not (
                items_with_reasoning
                and get_item_type(item) == get_item_type(items_with_reasoning[-1]) == "function_call"
            ):
                text = f"Considering what to do about: {parsed_request.user_text[:80]}"
                items_with_reasoning.append(items.build_reasoning(self.id_generator, text, is_encrypted=is_encrypted))
            items_with_reasoning.append(item)
        return items_with_reasoning

    def _get_container(self, parsed_request: ParsedRequest) -> str:
        """Return the container that the request names, the last of its history, or a new one."""
        tool_containers = [tool.get("container") for tool in parsed_request.tools]
        calls = (item for item in reversed(parsed_request.transcript) if get_item_type(item) == "code_interpreter_call")
        call_containers = (call.get("container_id") for call in calls)
        container_ids = (
            container for container in chain(tool_containers, call_containers) if isinstance(container, str)
        )
        return next(container_ids, None) or self.id_generator.new("cntr_")


def needs_analysis(parsed_request: ParsedRequest) -> bool:
    """Return whether the request needs a code run: it has the tool and is not a question about earlier turns."""
    text = parsed_request.user_text
    follows_up = bool(parsed_request.assistant_texts) and (
        derived_calls.is_question(text) or derived_calls.refers_to_history(text)
    )
    return parsed_request.has_tool("code_interpreter") and not follows_up


def summarize_results(results: list[ToolResult], parsed_request: ParsedRequest) -> str:
    """Return the response after tool calls; it quotes every output."""
    summary = "; ".join(f"{result.name} returned {quote(result.output)}" for result in results)
    return (
        f"{summary}. That answers {quote(parsed_request.user_text)}, message {len(parsed_request.user_texts)} of yours."
    )


def summarize_history(parsed_request: ParsedRequest) -> str:
    """Return a text that quotes the conversation, so a lost or reordered history is visible."""
    user_texts = parsed_request.user_texts
    lines = [f"You asked: {quote(parsed_request.user_text)}."]
    lines.append(f"I have seen {len(user_texts)} message{'s' * (len(user_texts) != 1)} from you.")
    if user_texts[:-1]:
        lines.append("Earlier you said: " + "; ".join(quote(text) for text in user_texts[:-1]) + ".")
    results = parsed_request.get_results(parsed_request.transcript)
    if results:
        lines.append(
            "The tools returned: " + "; ".join(f"{result.name} {quote(result.output)}" for result in results) + "."
        )
    if parsed_request.logs:
        lines.append("The code printed: " + "; ".join(quote(log) for log in parsed_request.logs) + ".")
    if parsed_request.assistant_texts:
        lines.append(f"My last answer began: {parsed_request.assistant_texts[-1][:80]!r}.")
    return " ".join(lines)


def quote(text: str) -> str:
    """Return a text in quotation marks; for a long text, only its beginning and its remaining length."""
    if len(text) <= MAX_QUOTED_CHARACTERS:
        return repr(text)
    return f"{text[:EXCERPT_CHARACTERS]!r} and {len(text) - EXCERPT_CHARACTERS:,} more characters"
