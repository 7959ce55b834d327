"""Recorded traffic of the Messages API, matched to requests like the recordings of Responses."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from practice_model.dialects.anthropic.event_grammar import message_from_events
from practice_model.dialects.anthropic.reading import (
    find_issued_values,
    items_from_message,
    merge_messages,
    parse_request,
)
from practice_model.dialects.responses.items import Json
from practice_model.play.recordings import Recording, Recordings, Version, read_recorded_files


@dataclass(frozen=True)
class AnthropicRecording(Recording):
    """One recorded model call; its versions have the API's own message and events, and the corresponding items."""

    @property
    def stream_version(self) -> Version:
        """The recording for a streaming request."""
        if self.events is None:
            return self.body_version
        return _build_version(message_from_events(self.events), self.events)

    @property
    def body_version(self) -> Version:
        """The recording for a request without streaming."""
        return self.stream_version if self.body is None else _build_version(self.body, None)


def load_recordings(folder: Path | None) -> Recordings:
    """Load the recordings of this API; empty if the folder has none."""
    root = folder / "anthropic" if folder else None
    if root is None or not root.is_dir():
        return Recordings({})
    return Recordings({recording.name: recording for recording in _load(root)})


def find_genuine_values(recordings: Recordings) -> Iterator[str]:
    """Yield all signatures in recorded responses and accepted requests."""
    for recording in recordings.by_name.values():
        messages = merge_messages(recording.request or {})
        for content in (
            recording.stream_version.response.get("content"),
            recording.body_version.response.get("content"),
        ):
            yield from find_issued_values(cast("list[Json]", content or []))
        for message in messages:
            yield from find_issued_values(message["content"])


def list_containers(recordings: Recordings) -> Iterable[str]:
    """Return the container ids in the recordings."""
    containers = (recording.stream_version.response.get("container") for recording in recordings.by_name.values())
    return [str(cast("Json", container)["id"]) for container in containers if isinstance(container, dict)]


def _build_version(message: Json, events: list[Json] | None) -> Version:
    items = list(items_from_message({"role": "assistant", "content": message.get("content") or []}))
    return Version(message, items, events)


def _load(root: Path) -> Iterator[AnthropicRecording]:
    for name, events, body, request in read_recorded_files(root):
        is_message = events is not None or (body is not None and body.get("type") == "message")
        if is_message and (request is None or "messages" in request):
            transcript = parse_request(request).transcript if request else None
            yield AnthropicRecording(name, events, body, request, transcript)
