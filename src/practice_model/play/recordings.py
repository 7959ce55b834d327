"""A folder of recorded Responses traffic, and the recording that answers a request.

Layout: `name.jsonl`, `name.response.json`, `name.request.json`, and `multiturn/<name>/NN.events.jsonl`,
`NN.response.json`, `NN.request.json`. A subfolder `openai-responses` is used if present.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from practice_model.dialects.responses.ids import IdMint
from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import Reading, input_items, kind_of


class RecordingsError(Exception):
    """The recordings folder cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class Recording:
    """One recorded model call.

    Args:
        events: the recorded stream; None if only a body was recorded.
        body: the recorded body; None if only a stream was recorded.
        transcript: the recorded input after earlier turns of the same folder; None if no request was recorded.
    """

    name: str
    events: list[Json] | None
    body: Json | None
    request: Json | None
    transcript: Sequence[Json] | None

    @property
    def streamed(self) -> "Version":
        """The recording for a streaming request."""
        if self.events is None:
            return self.whole
        endings: list[Json] = [event["response"] for event in self.events if "response" in event]
        done = [event["item"] for event in self.events if event["type"] == "response.output_item.done"]
        return Version(endings[-1] if endings else {"id": None, "output": []}, done, self.events)

    @property
    def whole(self) -> "Version":
        """The recording for a request without streaming; body and stream may be of different runs."""
        if self.body is None:
            return self.streamed
        return Version(self.body, cast("list[Json]", self.body.get("output") or []), None)

    @property
    def signature(self) -> tuple[str, int] | None:
        """What a matching request shares with the recorded one: the last user text and the tool outputs since."""
        if self.transcript is None:
            return None
        return signature(Reading(self.request or {}, self.transcript))

    @property
    def user_text(self) -> str | None:
        """The last user message of the recorded request."""
        return self.signature[0] if self.signature else None


_ANY_ID = re.compile(
    r'(?<=")(?:resp|msg|toolu|srvtoolu|mcptoolu|rs|fc|call|ci|ws|fs|mcpl?|mcpr|ig|ctc|sho?|apc|tsc|tso|cmo?)_[0-9A-Za-z]{20,}(?=")'
)


@dataclass(frozen=True)
class Version:
    """One recorded run: the final response, its items, and the stream if that was recorded."""

    response: Json
    output: list[Json]
    events: list[Json] | None

    def with_ids(self, mint: IdMint) -> "Version":
        """Return the run with new ids."""
        new: dict[str, str] = {}

        def renew(found: re.Match[str]) -> str:
            return new.setdefault(found[0], mint.like(found[0]))

        fresh = json.loads(_ANY_ID.sub(renew, json.dumps([self.response, self.output, self.events])))
        return Version(*fresh)


def signature(reading: Reading) -> tuple[str, int]:
    """Return the last user text and the number of tool outputs and approvals after it."""
    outputs = [item for item in reading.since_user if kind_of(item).endswith(("_output", "_approval_response"))]
    return reading.user_text, len(outputs)


@dataclass(frozen=True)
class Recordings:
    """The recordings of a folder by name."""

    by_name: Mapping[str, Recording]

    @classmethod
    def load(cls, folder: Path) -> "Recordings":
        """Read a folder.

        Raises:
            RecordingsError: the folder is missing, or holds no recording.
        """
        if not folder.is_dir():
            raise RecordingsError(f"Recordings folder {str(folder)!r} does not exist: give another --recordings DIR.")
        inner = folder / "openai-responses"
        root = inner if inner.is_dir() else folder
        found = [*_load_singles(root), *_load_conversations(root / "multiturn")]
        if not found:
            raise RecordingsError(
                f"Folder {str(folder)!r} holds no recordings: expected NAME.jsonl or multiturn/NAME/NN.events.jsonl."
            )
        return cls({recording.name: recording for recording in found})

    def find(self, name: str) -> Recording:
        """Return a recording by its name, with or without a file suffix.

        Raises:
            KeyError: the name is unknown.
        """
        bare = name
        for suffix in (".jsonl", ".response.json", ".events"):
            bare = bare.removesuffix(suffix)
        return self.by_name[bare]

    def matching(self, reading: Reading) -> Recording | None:
        """Return the recording of an equal request at the same point, preferring the same model.

        A transcript with calls of a recorded conversation continues that conversation.
        """
        wanted = signature(reading)
        if not wanted[0]:
            return None
        candidates = [
            recording
            for recording in self.by_name.values()
            if recording.signature == wanted and _calls_only(recording, reading.functions)
        ]
        users, calls = len(reading.user_texts), _call_ids(reading.transcript)
        return max(
            candidates,
            key=lambda one: (
                len(calls & _call_ids(one.transcript or [])),
                (one.request or {}).get("model") == reading.model,
                len(Reading({}, one.transcript or []).user_texts) == users,
            ),
            default=None,
        )

    @property
    def encrypted_values(self) -> Iterable[str]:
        """All genuine encrypted values of the folder, from outputs and accepted inputs.

        A reasoning item may have one value in its `done` event and another in the terminal event; both are genuine.
        """
        for one in self.by_name.values():
            endings = cast("list[Json]", one.streamed.response.get("output") or [])
            for item in [*one.streamed.output, *endings, *one.whole.output, *(one.transcript or [])]:
                if isinstance(item.get("encrypted_content"), str):
                    yield item["encrypted_content"]


def _call_ids(transcript: Sequence[Json]) -> set[str]:
    return {str(item["call_id"]) for item in transcript if "call_id" in item}


def _calls_only(recording: Recording, functions: Mapping[str, Any]) -> bool:
    called = {item.get("name") for item in recording.streamed.output if kind_of(item) == "function_call"}
    return called <= set(functions)


def _load_singles(root: Path) -> Iterable[Recording]:
    names = {path.name.removesuffix(".jsonl").removesuffix(".response.json") for path in root.glob("*.json*")}
    for name in sorted(name for name in names if not name.endswith(".request.json")):
        files = _Files(root / f"{name}.jsonl", root / f"{name}.response.json", root / f"{name}.request.json")
        recording = _load(name, files, [])
        if recording:
            yield recording


def _load_conversations(root: Path) -> Iterable[Recording]:
    for folder in sorted(path for path in root.glob("*") if path.is_dir()):
        earlier: list[Json] = []
        for number in sorted({path.name.split(".")[0] for path in folder.glob("[0-9]*.json*")}):
            stem = folder / number
            files = _Files(*(Path(f"{stem}.{kind}") for kind in ("events.jsonl", "response.json", "request.json")))
            recording = _load(f"multiturn/{folder.name}/{number}", files, earlier)
            if recording:
                earlier = [*(recording.transcript or earlier), *recording.streamed.output]
                yield recording


class _Files(NamedTuple):
    """Paths of one recording; some may be absent."""

    events: Path
    body: Path
    request: Path


def _load(name: str, files: _Files, earlier: list[Json]) -> Recording | None:
    asked, answered = _read(files.request), _read(files.body)
    lines = files.events.read_text().splitlines() if files.events.is_file() else None
    stream = None if lines is None else [json.loads(line)["data"] for line in lines]
    if stream is None and (answered is None or answered.get("object") != "response"):
        return None
    transcript = None
    if asked and asked.get("input"):
        continues = asked.get("previous_response_id") or asked.get("conversation")
        transcript = [*(earlier if continues else []), *input_items(asked)]
    return Recording(name, stream, answered, asked, transcript)


def _read(path: Path) -> Json | None:
    return cast("Json | None", json.loads(path.read_text())) if path.is_file() else None
