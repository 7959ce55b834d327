"""Plans posted by tests: the requests that they match, and their steps, one per model call.

A plan is `{"when": {...}, "times": 1, "by_round": false, "steps": [...]}`; the first unfinished plan that matches
answers. Its steps are played in order. With `by_round`, the step's index is the number of tool rounds since the user's
message, and the last step serves all later rounds, so a repeated request gets the same step.
A step is one of these, or an `items` list of the first six in any order:

- `{"compaction": text}`: an item that stands for everything before it, as `context_management` makes the service emit.
- `{"reasoning": text}`: reasoning before the next item; encrypted if the request includes it, or by `encrypted`.
- `{"code": text, "logs": text, "image": true}`: a hosted code run.
- `{"text": text, "files": [names], "citation": true, "phase": name}`: a message that cites the files.
- `{"calls": [{"name": name, "arguments": object or exact string}]}`: parallel function calls.
- `{"item": {"type": type, …}}`: an output item, sent unchanged but for missing ids.
- `{"recording": name, "new_ids": false}`: recorded traffic.
- `{"error": {"status": 429, "code": c, "message": m, "retry_after": seconds}}`: an HTTP error.

The delivery of a step: `chunk_characters`, `delay_milliseconds` per event, `break_after_events`, `clock`, and
`until_file`, the path of a file for which the last event of a stream waits; its ending:
`fail: {"code": c, "message": m}`, `incomplete: reason`; and `usage` numbers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.ids import IdMint
from practice_model.dialects.responses.items import (
    Json,
    cite_files,
    code_call,
    compaction,
    function_call,
    message,
    reasoning,
)
from practice_model.dialects.responses.reading import Reading
from practice_model.play.answer import Answer, Delivery
from practice_model.play.recordings import Recordings
from practice_model.rules import item_shapes

STEP_KEYS = frozenset(
    {
        "recording",
        "new_ids",
        "compaction",
        "text",
        "phase",
        "reasoning",
        "encrypted",
        "calls",
        "code",
        "logs",
        "image",
        "files",
        "citation",
        "item",
    }
    | {"items", "chunk_characters", "delay_milliseconds", "break_after_events", "error", "fail", "incomplete", "usage"}
    | {"clock", "until_file"}
)
_WHEN_KEYS = frozenset({"user_text", "agent", "model"})


class PlanError(Exception):
    """A posted plan is invalid; the message says why."""


@dataclass
class Plan:
    """Steps for matching requests.

    Args:
        when: `user_text` and `agent` are substrings, `model` is the whole name; absent conditions always match.
        times: number of passes through the steps; None for no limit.
        by_round: the request's round selects the step; such a plan never finishes.
    """

    when: Mapping[str, str]
    steps: list[Json]
    times: int | None = 1
    by_round: bool = False
    played: int = field(default=0, init=False)

    @classmethod
    def parse(cls, body: Any) -> "Plan":
        """Read a posted plan.

        Raises:
            PlanError: an unknown key, or no steps.
        """
        if not isinstance(body, dict):
            raise PlanError("A plan is a JSON object with 'steps'.")
        given = cast("Json", body)
        when = cast("dict[str, str]", given.get("when") or {})
        steps = cast("list[Json]", given.get("steps") or [])
        unknown = (set(given) - {"when", "times", "by_round", "steps"}) | (set(when) - _WHEN_KEYS)
        for part in [*steps, *(item for step in steps for item in cast("list[Json]", step.get("items") or []))]:
            unknown |= set(part) - STEP_KEYS
        if unknown:
            raise PlanError(f"Unknown keys in the plan: {sorted(unknown)!r}.")
        if not steps:
            raise PlanError("A plan needs at least one step.")
        by_round = bool(given.get("by_round"))
        return cls(when, steps, None if by_round else cast("int | None", given.get("times", 1)), by_round)

    @property
    def is_over(self) -> bool:
        """Whether all passes are finished."""
        return self.times is not None and self.played >= self.times * len(self.steps)

    def matches(self, reading: Reading) -> bool:
        """Return whether the plan answers this request."""
        return (
            not self.is_over
            and self.when.get("user_text", "") in reading.user_text
            and ("agent" not in self.when or self.when["agent"] in reading.agent)
            and self.when.get("model", reading.model) == reading.model
        )

    def take(self, reading: Reading) -> Json:
        """Return the next step, or that of the request's round, and count it."""
        place = min(reading.rounds, len(self.steps) - 1) if self.by_round else self.played % len(self.steps)
        step = self.steps[place]
        self.played += 1
        return step

    def shown(self) -> Json:
        """Return the plan as JSON with its progress."""
        shown: Json = {"when": dict(self.when), "times": self.times, "steps": self.steps, "played": self.played}
        return shown | ({"by_round": True} if self.by_round else {})


def perform(
    step: Json, reading: Reading, mint: IdMint, recordings: Recordings | None, container: Callable[[], str]
) -> Answer | HttpError:
    """Turn a step into an answer to this request.

    Args:
        step: of a plan.
        reading: the request.
        mint: of new ids.
        recordings: recorded traffic; None without.
        container: gives the id of the request's container, always the same one.

    Raises:
        PlanError: the step names an unknown recording.
    """
    error = step.get("error")
    if error:
        status = int(error.get("status", 500))
        kind = error.get("type") or ("server_error" if status >= 500 else "invalid_request_error")  # noqa: PLR2004
        message_ = error.get("message") or f"The practice model was told to answer with status {status}."
        return HttpError(status, message_, error.get("code"), error.get("param"), kind, error.get("retry_after"))
    named = ("chunk_characters", "delay_milliseconds", "break_after_events", "clock", "until_file")
    delivery = Delivery(**{name: step[name] for name in named if name in step})
    if "recording" in step:
        return replay(step, reading, mint, recordings, delivery)
    parts = cast("list[Json]", step.get("items") or [step])
    output = [item for part in parts for item in _items_of(part, reading, mint, container)]
    ending = {"failure": step.get("fail"), "incomplete": step.get("incomplete"), "usage": step.get("usage")}
    return Answer(output, delivery, **ending)


def replay(
    step: Mapping[str, Any], reading: Reading, mint: IdMint, recordings: Recordings | None, delivery: Delivery
) -> Answer:
    """Return a recording as an answer: its stream for a streaming request, else its body.

    With `new_ids`, new ids of the same form replace all of its ids, so it can be played more than once in one
    conversation.

    Raises:
        PlanError: there is no such recording.
    """
    name = step["recording"]
    if recordings is None:
        raise PlanError(f"No recording {name!r}: the practice model was started without --recordings DIR.")
    try:
        recording = recordings.find(name)
    except KeyError:
        raise PlanError(f"No recording {name!r} in the recordings folder.") from None
    version = recording.streamed if reading.body.get("stream") else recording.whole
    if step.get("new_ids"):
        version = version.with_ids(mint)
    return Answer(version.output, delivery, recorded_response=version.response, recorded_events=version.events)


def _items_of(part: Json, reading: Reading, mint: IdMint, container: Callable[[], str]) -> list[Json]:
    """Return the items of one part in the API's order: compaction, reasoning, code, text, calls."""
    output: list[Json] = [compaction(mint, part["compaction"])] if "compaction" in part else []
    if "reasoning" in part:
        encrypted = bool(part.get("encrypted", reading.includes("reasoning.encrypted_content")))
        output.append(reasoning(mint, part["reasoning"], encrypted=encrypted))
    if "code" in part:
        wanted = reading.includes("code_interpreter_call.outputs")
        run: dict[str, Any] = {"logs": part.get("logs"), "image": bool(part.get("image")), "include_outputs": wanted}
        output.append(code_call(mint, part["code"], container(), **run))
    files = cast("list[str]", part.get("files") or [])
    if "text" in part or files:
        text, citations = part.get("text", ""), list[Json]()
        if files and part.get("citation", True):
            text, citations = cite_files(mint, text or "The files are ready.", container(), files)
        output.append(message(mint, text, citations, part.get("phase")))
    calls = cast("list[Json]", part.get("calls") or [])
    output += [function_call(mint, call["name"], call.get("arguments", {})) for call in calls]
    return [*output, _whole_item(part["item"], mint)] if "item" in part else output


def _whole_item(item: Json, mint: IdMint) -> Json:
    """Return a literal item of a plan, with its missing ids."""
    prefix = item_shapes.ID_PREFIXES.get(str(item.get("type")), "item")
    given: Json = {"id": mint.like(f"{prefix}_{'0' * 50}")}
    if "call_id" in item_shapes.FIELDS.get(str(item.get("type")), ((), ()))[0]:
        given["call_id"] = mint.new("call_")
    return {**given, **item}
