"""Chooses the answer: from a plan, a matching recording, or derived from the request."""

from dataclasses import dataclass, field
from functools import cache
from itertools import chain

from practice_model.dialects.responses import items
from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.ids import IdMint
from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import Reading, ToolResult, kind_of
from practice_model.play import analyst, derived_calls, plans
from practice_model.play.answer import Answer, Delivery
from practice_model.play.plans import Plan
from practice_model.play.recordings import Recordings

REASONING_MODELS = "practice-reasoning"
"""Models whose name begins so think before they speak."""

MOST_QUOTED = 16_384
"""Characters of a text that an answer quotes whole; a model does not repeat megabytes either."""
SHORTENED = 200
"""Characters that it quotes of a longer one."""


@dataclass
class Player:
    """Answers from plans first, then recordings, then from the request itself."""

    mint: IdMint
    recordings: Recordings | None = None
    plans: list[Plan] = field(default_factory=list[Plan])

    def answer(self, reading: Reading) -> Answer | HttpError:
        """Answer a request that has passed the rules.

        Raises:
            PlanError: the plan's step cannot be performed.
        """
        plan = next((plan for plan in self.plans if plan.matches(reading)), None)
        if plan:
            container = cache(lambda: self._container(reading))
            return plans.perform(plan.take(reading), reading, self.mint, self.recordings, container)
        recording = self.recordings.matching(reading) if self.recordings else None
        if recording:
            step = {"recording": recording.name}
            return plans.replay(step, reading, self.mint, self.recordings, Delivery())
        return Answer(self._think(self._derived(reading), reading))

    def _derived(self, reading: Reading) -> list[Json]:
        results = reading.results(reading.since_user)
        if results:
            return [items.message(self.mint, tell_results(results, reading))]
        offered = {} if reading.body.get("tool_choice") == "none" else reading.functions
        calls = derived_calls.derive_calls(reading.user_text, offered)
        if calls:
            return [items.function_call(self.mint, call.name, call.arguments) for call in calls]
        if wants_analysis(reading):
            wanted = reading.includes("code_interpreter_call.outputs")
            container = self._container(reading)
            return analyst.analyse(self.mint, reading.user_text, container, include_outputs=wanted)
        return [items.message(self.mint, tell_history(reading))]

    def _think(self, output: list[Json], reading: Reading) -> list[Json]:
        """Add reasoning before the items that models think about, if this model reasons.

        Parallel calls share one reasoning item, code runs and messages have their own, as on the live API.
        """
        if not reading.model.startswith(REASONING_MODELS):
            return output
        encrypted = reading.includes("reasoning.encrypted_content")
        thought: list[Json] = []
        for item in output:
            if not (thought and kind_of(item) == kind_of(thought[-1]) == "function_call"):
                text = f"Considering what to do about: {reading.user_text[:80]}"
                thought.append(items.reasoning(self.mint, text, encrypted=encrypted))
            thought.append(item)
        return thought

    def _container(self, reading: Reading) -> str:
        """Return the container that the request names, the last of its history, or a new one."""
        named = [tool.get("container") for tool in reading.tools]
        calls = (item for item in reversed(reading.transcript) if kind_of(item) == "code_interpreter_call")
        used = (call.get("container_id") for call in calls)
        known = (one for one in chain(named, used) if isinstance(one, str))
        return next(known, None) or self.mint.new("cntr_")


def wants_analysis(reading: Reading) -> bool:
    """Return whether the request asks for a code run: it offers the tool and is no question about earlier turns."""
    text = reading.user_text
    follows_up = bool(reading.assistant_texts) and (derived_calls.is_question(text) or derived_calls.looks_back(text))
    return reading.offers("code_interpreter") and not follows_up


def tell_results(results: list[ToolResult], reading: Reading) -> str:
    """Return the answer after tool calls; it quotes every output."""
    told = "; ".join(f"{result.name} returned {quoted(result.output)}" for result in results)
    return f"{told}. That answers {quoted(reading.user_text)}, message {len(reading.user_texts)} of yours."


def tell_history(reading: Reading) -> str:
    """Return a plain answer that quotes the conversation, so it shows a lost or reordered history."""
    said = reading.user_texts
    lines = [f"You asked: {quoted(reading.user_text)}."]
    lines.append(f"I have seen {len(said)} message{'s' * (len(said) != 1)} from you.")
    if said[:-1]:
        lines.append("Earlier you said: " + "; ".join(quoted(text) for text in said[:-1]) + ".")
    results = reading.results(reading.transcript)
    if results:
        lines.append("The tools returned: " + "; ".join(f"{one.name} {quoted(one.output)}" for one in results) + ".")
    if reading.logs:
        lines.append("The code printed: " + "; ".join(quoted(log) for log in reading.logs) + ".")
    if reading.assistant_texts:
        lines.append(f"My last answer began: {reading.assistant_texts[-1][:80]!r}.")
    return " ".join(lines)


def quoted(text: str) -> str:
    """Return a text in quotation marks; of one that is too long to be said again, its beginning and its length."""
    if len(text) <= MOST_QUOTED:
        return repr(text)
    return f"{text[:SHORTENED]!r} and {len(text) - SHORTENED:,} more characters"
