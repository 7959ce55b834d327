"""Recorded traffic of the Messages API, found as the recordings of Responses are."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from practice_model.dialects.anthropic.event_grammar import message_of
from practice_model.dialects.anthropic.reading import issued_values, items_of, messages_of, reading_of
from practice_model.dialects.responses.items import Json
from practice_model.play.recordings import Recording, Recordings, Version


@dataclass(frozen=True)
class AnthropicRecording(Recording):
    """One recorded model call; its versions hold the API's own message and events, and the items that they mean."""

    @property
    def streamed(self) -> Version:
        """The recording for a streaming request."""
        if self.events is None:
            return self.whole
        return _version(message_of(self.events), self.events)

    @property
    def whole(self) -> Version:
        """The recording for a request without streaming."""
        return self.streamed if self.body is None else _version(self.body, None)


def load_recordings(folder: Path | None) -> Recordings:
    """Read the recordings of this API; none when the folder has none.

    Args:
        folder: with a subfolder ``anthropic``.
    """
    root = folder / "anthropic" if folder else None
    if root is None or not root.is_dir():
        return Recordings({})
    stems = sorted({path.parent / path.name.split(".")[0] for path in root.rglob("*.json*")})
    found = (_load(stem, str(stem.relative_to(root))) for stem in stems if stem.name != "turns")
    return Recordings({one.name: one for one in found if one is not None})


def genuine_values(recordings: Recordings) -> Iterator[str]:
    """Yield all signatures of the recordings, of answers and of accepted requests."""
    for one in recordings.by_name.values():
        messages = messages_of(one.request or {})
        for content in (one.streamed.response.get("content"), one.whole.response.get("content")):
            yield from issued_values(cast("list[Json]", content or []))
        for message in messages:
            yield from issued_values(message["content"])


def recorded_containers(recordings: Recordings) -> Iterable[str]:
    """List the containers that the recordings name."""
    named = (one.streamed.response.get("container") for one in recordings.by_name.values())
    return [str(cast("Json", one)["id"]) for one in named if isinstance(one, dict)]


def _version(message: Json, events: list[Json] | None) -> Version:
    items = list(items_of({"role": "assistant", "content": message.get("content") or []}))
    return Version(message, items, events)


def _load(stem: Path, name: str) -> AnthropicRecording | None:
    body, request = (_read(Path(f"{stem}.{kind}.json")) for kind in ("response", "request"))
    streams = [path for path in (Path(f"{stem}.jsonl"), Path(f"{stem}.events.jsonl")) if path.is_file()]
    events = [json.loads(line)["data"] for line in streams[0].read_text().splitlines()] if streams else None
    if events is None and (body is None or body.get("type") != "message"):
        return None
    if request is not None and "messages" not in request:
        return None
    transcript = reading_of(request).transcript if request else None
    return AnthropicRecording(name, events, body, request, transcript)


def _read(path: Path) -> Json | None:
    return cast("Json", json.loads(path.read_text())) if path.is_file() else None
