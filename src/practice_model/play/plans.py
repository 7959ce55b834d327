"""Plans posted by tests: the requests that they match, and their steps, one per model call.

A plan is `{"when": {...}, "times": 1, "by_round": false, "steps": [...]}`; the first unfinished plan that matches
is used. Its steps are played in order. With `by_round`, the step's index is the number of tool rounds since the user's
message, and the last step serves all later rounds, so a repeated request gets the same step.
A step is one of these, or an `items` list of the first six in any order:

- `{"compaction": text}`: an item that replaces everything before it, as the service emits for `context_management`.
- `{"reasoning": text}`: reasoning before the next item; encrypted if the request includes it, or by `encrypted`.
- `{"code": text, "logs": text, "image": true}`: a hosted code run.
- `{"text": text, "files": [names], "citation": true, "phase": name}`: a message that cites the files.
- `{"calls": [{"name": name, "arguments": object or exact string}]}`: parallel function calls.
- `{"item": {"type": type, …}}`: an output item, sent unchanged but for missing ids.
- `{"error": {"status": 429, "code": c, "message": m, "retry_after": seconds}}`: an HTTP error.

The delivery of a step: `chunk_characters`, `delay_milliseconds` per event, `break_after_events`, `clock`, and
`until_file`, the path of a file for which the last event of a stream waits; its ending:
`fail: {"code": c, "message": m}`, `incomplete: reason`; and `usage` numbers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, cast

import yaml

from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.ids import IdGenerator
from practice_model.dialects.responses.items import (
    Json,
    build_code_call,
    build_compaction,
    build_function_call,
    build_message,
    build_reasoning,
    cite_files,
)
from practice_model.dialects.responses.reading import ParsedRequest
from practice_model.play.answer import Delivery, FakeResponse
from practice_model.rules import item_shapes

STEP_KEYS = frozenset(
    {
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
    """A posted plan is invalid; the message has the reason."""


@dataclass
class Plan:
    """Steps for matching requests.

    Args:
        when: `user_text` and `agent` are substrings, `model` is the full name; absent conditions always match.
        times: number of passes through the steps; None for no limit.
        by_round: the request's round selects the step; such a plan never finishes.
    """

    step_keys: ClassVar[frozenset[str]] = STEP_KEYS

    when: Mapping[str, str]
    steps: list[Json]
    times: int | None = 1
    by_round: bool = False
    played_count: int = field(default=0, init=False)

    @classmethod
    def parse(cls, body: Any) -> "Plan":
        """Parse a posted plan.

        Raises:
            PlanError: an unknown key, or no steps.
        """
        if not isinstance(body, dict):
            raise PlanError("A plan is a JSON object with 'steps'.")
        fields = cast("Json", body)
        when = cast("dict[str, str]", fields.get("when") or {})
        if isinstance(when, str):
            when = {"user_text": when}
        steps = cast("list[Json]", fields.get("steps") or [])
        unknown_keys = (set(fields) - {"when", "times", "by_round", "steps"}) | (set(when) - _WHEN_KEYS)
        for part in [*steps, *(item for step in steps for item in cast("list[Json]", step.get("items") or []))]:
            unknown_keys |= set(part) - cls.step_keys
        if unknown_keys:
            raise PlanError(f"Unknown keys in the plan: {sorted(unknown_keys)!r}.")
        if not steps:
            raise PlanError("A plan needs at least one step.")
        by_round = bool(fields.get("by_round"))
        return cls(when, steps, None if by_round else cast("int | None", fields.get("times", 1)), by_round)

    @property
    def is_over(self) -> bool:
        """Whether all passes are finished."""
        return self.times is not None and self.played_count >= self.times * len(self.steps)

    def matches(self, parsed_request: ParsedRequest) -> bool:
        """Return whether the plan applies: to the latest message of the user, or to an earlier one that it answers."""
        is_started = self.played_count % len(self.steps) and not self.by_round
        user_text = "\n".join(parsed_request.user_texts) if is_started else parsed_request.user_text
        return (
            not self.is_over
            and self.when.get("user_text", "") in user_text
            and self.when.get("agent", "") in parsed_request.agent
            and self.when.get("model", parsed_request.model) == parsed_request.model
        )

    def next_step(self, parsed_request: ParsedRequest) -> Json:
        """Return the next step, or that of the request's round, and count it."""
        index = (
            min(parsed_request.rounds, len(self.steps) - 1) if self.by_round else self.played_count % len(self.steps)
        )
        step = self.steps[index]
        self.played_count += 1
        return step

    def to_json(self) -> Json:
        """Return the plan as JSON with its progress."""
        return {
            "when": dict(self.when),
            "times": self.times,
            "steps": self.steps,
            "played": self.played_count,
            "by_round": self.by_round,
        }


def read_plans(file: Path) -> list[Plan]:
    """Read a YAML or JSON file with a list of plans.

    Raises:
        PlanError: a plan is invalid, or the file is no list of plans.
        OSError: the file cannot be read.
    """
    try:
        return [Plan.parse(body) for body in yaml.safe_load(file.read_text())]
    except (yaml.YAMLError, TypeError, AttributeError, ValueError) as error:
        raise PlanError(f"{file} has no list of plans: {error}") from error


def run_step(
    step: Json,
    parsed_request: ParsedRequest,
    id_generator: IdGenerator,
    get_container: Callable[[], str],
) -> FakeResponse | HttpError:
    """Return the response to a request from a plan's step."""
    error = step.get("error")
    if error:
        status = int(error.get("status", 500))
        kind = error.get("type") or ("server_error" if status >= 500 else "invalid_request_error")  # noqa: PLR2004
        error_message = error.get("message") or f"The practice model was told to answer with status {status}."
        return HttpError(status, error_message, error.get("code"), error.get("param"), kind, error.get("retry_after"))
    parts = cast("list[Json]", step.get("items") or [step])
    items = [item for part in parts for item in _items_from_part(part, parsed_request, id_generator, get_container)]
    return FakeResponse(
        items,
        Delivery.parse(step),
        failure=step.get("fail"),
        incomplete=step.get("incomplete"),
        usage=step.get("usage"),
    )


def _items_from_part(
    part: Json, parsed_request: ParsedRequest, id_generator: IdGenerator, get_container: Callable[[], str]
) -> list[Json]:
    """Return the items of one part in the API's order: compaction, reasoning, code, text, calls."""
    items: list[Json] = [build_compaction(id_generator, part["compaction"])] if "compaction" in part else []
    if "reasoning" in part:
        is_encrypted = bool(part.get("encrypted", parsed_request.includes("reasoning.encrypted_content")))
        items.append(build_reasoning(id_generator, part["reasoning"], is_encrypted=is_encrypted))
    if "code" in part:
        includes_outputs = parsed_request.includes("code_interpreter_call.outputs")
        items.append(
            build_code_call(
                id_generator,
                part["code"],
                get_container(),
                logs=part.get("logs"),
                has_image=bool(part.get("image")),
                include_outputs=includes_outputs,
            )
        )
    files = cast("list[str]", part.get("files") or [])
    if "text" in part or files:
        text = part.get("text", "")
        citations = list[Json]()
        if files and part.get("citation", True):
            text, citations = cite_files(id_generator, text or "The files are ready.", get_container(), files)
        items.append(build_message(id_generator, text, citations, part.get("phase")))
    calls = cast("list[Json]", part.get("calls") or [])
    items += [build_function_call(id_generator, call["name"], call.get("arguments", {})) for call in calls]
    return [*items, _complete_item(part["item"], id_generator)] if "item" in part else items


def _complete_item(item: Json, id_generator: IdGenerator) -> Json:
    """Return a literal item of a plan, with missing ids added."""
    prefix = item_shapes.ID_PREFIXES.get(str(item.get("type")), "item")
    missing_ids: Json = {"id": id_generator.new_like(f"{prefix}_{'0' * 50}")}
    if "call_id" in item_shapes.FIELDS.get(str(item.get("type")), ((), ()))[0]:
        missing_ids["call_id"] = id_generator.new("call_")
    return {**missing_ids, **item}
