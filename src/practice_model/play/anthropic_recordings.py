"""Recorded traffic of the Messages API, matched to requests like the recordings of Responses."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

from practice_model.dialects.anthropic.event_grammar import message_from_events
from practice_model.dialects.anthropic.reading import items_from_message, parse_request
from practice_model.dialects.responses.items import Json
from practice_model.play.recordings import Recording, Recordings, Version, build_recording, read_recorded_files


def load_recordings(folder: Path | None) -> Recordings:
    """Load the recordings of this API; empty if the folder has none."""
    root = folder / "anthropic" if folder else None
    if root is None or not root.is_dir():
        return Recordings({})
    return Recordings({recording.name: recording for recording in _load(root)})


def list_containers(recordings: Recordings) -> Iterable[str]:
    """Return the container ids in the recordings."""
    containers = (recording.stream_version.response.get("container") for recording in recordings.by_name.values())
    return [str(cast("Json", container)["id"]) for container in containers if isinstance(container, dict)]


def _build_version(message: Json, events: list[Json] | None) -> Version:
    items = list(items_from_message({"role": "assistant", "content": message.get("content") or []}))
    return Version(message, items, events)


def _load(root: Path) -> Iterator[Recording]:
    for name, events, body, request in read_recorded_files(root):
        is_message = events is not None or (body is not None and body.get("type") == "message")
        if is_message and (request is None or "messages" in request):
            stream = None if events is None else _build_version(message_from_events(events), events)
            body_version = None if body is None else _build_version(body, None)
            parsed_request = parse_request(request) if request else None
            yield build_recording(
                name,
                stream,
                body_version,
                parsed_request and parsed_request.model,
                parsed_request and parsed_request.transcript,
            )
