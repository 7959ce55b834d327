"""A folder of recorded traffic, the lookup of the recording for a request, and a player of it.

Layout of the subfolder of an API: `name.jsonl`, `name.response.json`, `name.request.json`, and
`multiturn/<name>/NN.events.jsonl`, `NN.response.json`, `NN.request.json`. A `Format` says how an API's files are read.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, cast

from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import ParsedRequest, get_item_type
from practice_model.play.answer import Delivery, FakeResponse
from practice_model.play.plans import STEP_KEYS, Plan
from practice_model.play.player import Player


@dataclass(frozen=True)
class Format:
    """How the recorded traffic of one API is read.

    Attributes:
        folder: its subfolder.
        read_events: the events of a stream → the final response.
        list_items: a final response, and its events or none → the items that the model sent.
        is_response: whether a body is an answer, and not an error.
        read_transcript: a request, and the items of the conversation before it → what the model read.
    """

    folder: str
    read_events: Callable[[list[Json]], Json]
    list_items: Callable[[Json, list[Json]], list[Json]]
    is_response: Callable[[Json], bool]
    read_transcript: Callable[[Json, list[Json]], Sequence[Json] | None]


@dataclass(frozen=True)
class Version:
    """One recorded run: the final response, its items, and the stream if that was recorded."""

    response: Json
    output: list[Json]
    events: list[Json] | None


@dataclass(frozen=True)
class Recording:
    """One recorded model call.

    Args:
        stream_version: for a streaming request; the other one if no stream was recorded.
        body_version: for a request without streaming; body and stream may come from different runs.
        model: of the request.
        transcript: the recorded input after earlier turns of the same folder; None if no request was recorded.
    """

    name: str
    stream_version: Version
    body_version: Version
    model: Any
    transcript: Sequence[Json] | None

    @property
    def signature(self) -> tuple[str, int] | None:
        """The values that a matching request must share: last user text and number of tool outputs since."""
        return None if self.transcript is None else compute_signature(ParsedRequest({}, self.transcript))


def compute_signature(parsed_request: ParsedRequest) -> tuple[str, int]:
    """Return the last user text and the number of tool outputs and approvals after it."""
    outputs = [
        item for item in parsed_request.since_user if get_item_type(item).endswith(("_output", "_approval_response"))
    ]
    return parsed_request.user_text, len(outputs)


@dataclass(frozen=True)
class Recordings:
    """The recordings of a folder by name."""

    by_name: Mapping[str, Recording]

    def find_matching(self, parsed_request: ParsedRequest) -> Recording | None:
        """Return the recording of an equal request at the same point, preferring the same model.

        A transcript with calls of a recorded conversation continues that conversation.
        """
        requested_signature = compute_signature(parsed_request)
        if not requested_signature[0]:
            return None
        candidates = [
            recording
            for recording in self.by_name.values()
            if recording.signature == requested_signature and _calls_only_functions(recording, parsed_request.functions)
        ]
        user_message_count = len(parsed_request.user_texts)
        call_ids = _collect_call_ids(parsed_request.transcript)
        return max(
            candidates,
            key=lambda recording: (
                len(call_ids & _collect_call_ids(recording.transcript or [])),
                recording.model == parsed_request.model,
                len(ParsedRequest({}, recording.transcript or []).user_texts) == user_message_count,
            ),
            default=None,
        )

    @property
    def items(self) -> Iterable[Json]:
        """All items of outputs and accepted inputs; those of a stream may differ from those of its final response."""
        for recording in self.by_name.values():
            yield from recording.stream_version.output
            yield from cast("list[Json]", recording.stream_version.response.get("output") or [])
            yield from recording.body_version.output
            yield from recording.transcript or []

    @property
    def encrypted_values(self) -> Iterable[str]:
        """All genuine encrypted values of the folder."""
        values = (item.get("encrypted_content") for item in self.items)
        return [value for value in values if isinstance(value, str)]


def _collect_call_ids(transcript: Sequence[Json]) -> set[str]:
    return {str(item["call_id"]) for item in transcript if "call_id" in item}


def _calls_only_functions(recording: Recording, functions: Mapping[str, Any]) -> bool:
    function_names = {
        item.get("name") for item in recording.stream_version.output if get_item_type(item) == "function_call"
    }
    return function_names <= set(functions)


@cache
def load_recordings(folder: Path | None, form: Format) -> Recordings:
    """Load the recordings of one API; empty if the folder has none of it."""
    if folder is None:
        return Recordings({})
    return Recordings({recording.name: recording for recording in _load(folder / form.folder, form)})


def _load(root: Path, form: Format) -> Iterator[Recording]:
    paths = [*root.glob("*.json*"), *root.glob("multiturn/*/[0-9]*.json*")]
    stems = {path.parent / path.name.split(".")[0] for path in paths}
    conversation, earlier_items = root, list[Json]()
    for stem in sorted(stems, key=lambda stem: (len(stem.parts), stem)):
        if stem.parent != conversation or stem.parent == root:
            conversation, earlier_items = stem.parent, []
        streams = [path for path in (Path(f"{stem}.jsonl"), Path(f"{stem}.events.jsonl")) if path.is_file()]
        body, request = (_read_json(Path(f"{stem}.{kind}.json")) for kind in ("response", "request"))
        versions: list[Version] = []
        if streams:
            events = [json.loads(line)["data"] for line in streams[0].read_text().splitlines()]
            response = form.read_events(events)
            versions.append(Version(response, form.list_items(response, events), events))
        if body is not None and form.is_response(body):
            versions.append(Version(body, form.list_items(body, []), None))
        if versions:
            transcript = form.read_transcript(request, earlier_items) if request else None
            model = (request or {}).get("model") or versions[0].response.get("modelVersion")
            yield Recording(str(stem.relative_to(root)), versions[0], versions[-1], model, transcript)
            earlier_items = [*(transcript or earlier_items), *versions[0].output]


def _read_json(path: Path) -> Json | None:
    return cast("Json", json.loads(path.read_text())) if path.is_file() else None


@dataclass(frozen=True)
class RecordedResponse(FakeResponse):
    """A recorded response, sent unchanged.

    Attributes:
        version: what was recorded; `items` are its items.
    """

    version: Version = field(default_factory=lambda: Version({}, [], None))


class RecordedPlan(Plan):
    """A plan whose steps may also be `{"recording": name}`."""

    step_keys: ClassVar[frozenset[str]] = STEP_KEYS | {"recording"}


@dataclass
class RecordedPlayer(Player):
    """Responds from plans first, then from recordings, then from the request itself."""

    recordings: Recordings = field(default_factory=lambda: Recordings({}))

    def play_step(self, step: Json, parsed_request: ParsedRequest) -> FakeResponse | HttpError:
        """Respond with a recording, if the step names it."""
        name = step.get("recording")
        if name is None:
            return super().play_step(step, parsed_request)
        recording = self.recordings.by_name.get(name)
        if recording is None:
            return HttpError(400, f"No recording {name!r} in the recordings folder.", "practice_plan")
        return replace(_replay(recording, parsed_request), delivery=Delivery.parse(step))

    def improvise(self, parsed_request: ParsedRequest) -> FakeResponse:
        """Respond with the recording of an equal request, if there is one."""
        recording = self.recordings.find_matching(parsed_request)
        return _replay(recording, parsed_request) if recording else super().improvise(parsed_request)


def _replay(recording: Recording, parsed_request: ParsedRequest) -> RecordedResponse:
    version = recording.stream_version if parsed_request.body.get("stream") else recording.body_version
    return RecordedResponse(version.output, version=version)
