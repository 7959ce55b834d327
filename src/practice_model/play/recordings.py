"""A folder of recorded Responses traffic, and the lookup of the recording for a request.

Layout: `name.jsonl`, `name.response.json`, `name.request.json`, and `multiturn/<name>/NN.events.jsonl`,
`NN.response.json`, `NN.request.json`. A subfolder `openai-responses` is used if present.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import ParsedRequest, get_item_type, input_items


class RecordingsError(Exception):
    """The recordings folder cannot be used; the message has the reason and the next step."""


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
    model: Any = None
    transcript: Sequence[Json] | None = None

    @property
    def signature(self) -> tuple[str, int] | None:
        """The values that a matching request must share: last user text and number of tool outputs since."""
        return None if self.transcript is None else compute_signature(ParsedRequest({}, self.transcript))


def build_recording(
    name: str, stream: Version | None, body: Version | None, model: Any, transcript: Sequence[Json] | None
) -> Recording:
    """Return a recording of a stream, a body or both."""
    versions = [version for version in (stream, body) if version is not None]
    return Recording(name, versions[0], versions[-1], model, transcript)


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

    @classmethod
    def load(cls, folder: Path) -> "Recordings":
        """Load a folder.

        Raises:
            RecordingsError: the folder is missing or contains no recording.
        """
        if not folder.is_dir():
            raise RecordingsError(f"Recordings folder {str(folder)!r} does not exist: pass another --recordings DIR.")
        subfolder = folder / "openai-responses"
        root = subfolder if subfolder.is_dir() else folder
        recordings = {recording.name: recording for recording in _load(root)}
        if not recordings:
            raise RecordingsError(
                f"Folder {str(folder)!r} holds no recordings: expected NAME.jsonl or multiturn/NAME/NN.events.jsonl."
            )
        return cls(recordings)

    def find(self, name: str) -> Recording:
        """Return a recording by its name, with or without a file suffix.

        Raises:
            KeyError: the name is unknown.
        """
        base_name = name
        for suffix in (".jsonl", ".response.json", ".events"):
            base_name = base_name.removesuffix(suffix)
        return self.by_name[base_name]

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
    def encrypted_values(self) -> Iterable[str]:
        """All genuine encrypted values of the folder, from outputs and accepted inputs.

        A reasoning item may have one value in its `done` event and another in the terminal event; both are genuine.
        """
        for recording in self.by_name.values():
            final_items = cast("list[Json]", recording.stream_version.response.get("output") or [])
            for item in [
                *recording.stream_version.output,
                *final_items,
                *recording.body_version.output,
                *(recording.transcript or []),
            ]:
                if isinstance(item.get("encrypted_content"), str):
                    yield item["encrypted_content"]


def _collect_call_ids(transcript: Sequence[Json]) -> set[str]:
    return {str(item["call_id"]) for item in transcript if "call_id" in item}


def _calls_only_functions(recording: Recording, functions: Mapping[str, Any]) -> bool:
    function_names = {
        item.get("name") for item in recording.stream_version.output if get_item_type(item) == "function_call"
    }
    return function_names <= set(functions)


class RecordedFiles(NamedTuple):
    """The contents of the files of one recorded model call; None for absent ones."""

    name: str
    events: list[Json] | None
    body: Json | None
    request: Json | None


def read_recorded_files(root: Path) -> Iterator[RecordedFiles]:
    """Read the recordings of a folder, then those of its conversations, each in the order of their names."""
    paths = [*root.glob("*.json*"), *root.glob("multiturn/*/[0-9]*.json*")]
    stems = {path.parent / path.name.split(".")[0] for path in paths}
    for stem in sorted(stems, key=lambda stem: (len(stem.parts), stem)):
        streams = [path for path in (Path(f"{stem}.jsonl"), Path(f"{stem}.events.jsonl")) if path.is_file()]
        events = [json.loads(line)["data"] for line in streams[0].read_text().splitlines()] if streams else None
        body, request = (_read_json(Path(f"{stem}.{kind}.json")) for kind in ("response", "request"))
        yield RecordedFiles(str(stem.relative_to(root)), events, body, request)


def _read_json(path: Path) -> Json | None:
    return cast("Json", json.loads(path.read_text())) if path.is_file() else None


def _load(root: Path) -> Iterator[Recording]:
    conversation = ""
    earlier_items: list[Json] = []
    for name, events, body, request in read_recorded_files(root):
        if events is None and (body is None or body.get("object") != "response"):
            continue
        folder = name.rpartition("/")[0]
        if folder != conversation or not folder:
            conversation = folder
            earlier_items = []
        transcript = None
        if request and request.get("input"):
            is_continuation = request.get("previous_response_id") or request.get("conversation")
            transcript = [*(earlier_items if is_continuation else []), *input_items(request)]
        stream = None if events is None else _read_stream(events)
        body_version = None if body is None else Version(body, cast("list[Json]", body.get("output") or []), None)
        recording = build_recording(name, stream, body_version, (request or {}).get("model"), transcript)
        earlier_items = [*(transcript or earlier_items), *recording.stream_version.output]
        yield recording


def _read_stream(events: list[Json]) -> Version:
    final_responses: list[Json] = [event["response"] for event in events if "response" in event]
    done_items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    return Version(final_responses[-1] if final_responses else {"id": None, "output": []}, done_items, events)
