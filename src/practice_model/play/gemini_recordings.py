"""A folder of recorded traffic of the Gemini API, in the layout of `recordings`."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from practice_model.dialects.gemini.contents import objects, read_request
from practice_model.dialects.responses.items import Json
from practice_model.play.recordings import Recording, Recordings, Version


@dataclass(frozen=True)
class GeminiRecording(Recording):
    """One recorded model call; its events are chunks."""

    @property
    def streamed(self) -> Version:
        """The recording for a streaming request; a body is a stream of one chunk."""
        if self.events is None:
            return self.whole
        return Version({}, _items(self.events), self.events)

    @property
    def whole(self) -> Version:
        """The recording for a request without streaming; a stream is told as one body."""
        if self.body is not None:
            return Version(self.body, _items([self.body]), [self.body])
        events = self.events or []
        joined = json.loads(json.dumps(events[-1]))
        candidate = objects(joined.get("candidates"))[0]
        candidate["content"] = {"role": "model", "parts": [part for event in events for part in _parts(event)]}
        return Version(joined, _items([joined]), [joined])


def load_recordings(folder: Path | None) -> Recordings | None:
    """Read the subfolder of Gemini's traffic.

    Args:
        folder: of all recordings, or None.

    Returns:
        The recordings; None without the subfolder.
    """
    root = folder / "gemini" if folder is not None else None
    if root is None or not root.is_dir():
        return None
    return Recordings({one.name: one for one in _load(root)})


def _load(root: Path) -> Iterator[GeminiRecording]:
    paths = [*root.glob("*.jsonl"), *root.glob("*.response.json"), *root.glob("multiturn/*/[0-9]*.*")]
    stems = {path.parent / path.name.split(".")[0] for path in paths if not path.name.endswith(".request.json")}
    for stem in sorted(stems):
        events, whole = Path(f"{stem}.jsonl"), _read(Path(f"{stem}.response.json"))
        events = events if events.is_file() else Path(f"{stem}.events.jsonl")
        lines = events.read_text().splitlines() if events.is_file() else None
        stream = None if lines is None else [json.loads(line)["data"] for line in lines]
        if stream is None and (whole is None or "candidates" not in whole):
            continue
        asked = _read(Path(f"{stem}.request.json"))
        transcript = None if asked is None else read_request("", asked, stream=True).transcript
        model = {"model": (stream or [whole or {}])[0].get("modelVersion")}
        yield GeminiRecording(str(stem.relative_to(root)), stream, whole, model, transcript)


def _read(path: Path) -> Json | None:
    return cast("Json", json.loads(path.read_text())) if path.is_file() else None


def _parts(response: Json) -> list[Json]:
    return [
        part for one in objects(response.get("candidates"))[:1] for part in objects(one.get("content", {}).get("parts"))
    ]


def _items(responses: list[Json]) -> list[Json]:
    """List the items of an answer, by which the recording that fits a request is found, and its parts."""
    parts: list[Any] = [part for one in responses for part in _parts(one)]
    calls = [part["functionCall"] for part in parts if part.get("functionCall", {}).get("name")]
    return [
        *({"type": "function_call", "name": call["name"], "call_id": str(call.get("id"))} for call in calls),
        *({"type": "part", "part": part} for part in parts),
    ]
