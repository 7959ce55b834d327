"""A folder of recorded traffic of the Gemini API, in the layout of `recordings`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from practice_model.dialects.gemini.contents import list_objects, parse_generate_request
from practice_model.dialects.responses.items import Json
from practice_model.play.recordings import Recording, Recordings, Version, build_recording, read_recorded_files


def load_recordings(folder: Path | None) -> Recordings | None:
    """Load the subfolder with Gemini's traffic.

    Returns:
        The recordings; None without the subfolder.
    """
    root = folder / "gemini" if folder is not None else None
    if root is None or not root.is_dir():
        return None
    return Recordings({recording.name: recording for recording in _load(root)})


def _load(root: Path) -> Iterator[Recording]:
    for name, events, body, request in read_recorded_files(root):
        if events is None and (body is None or "candidates" not in body):
            continue
        transcript = None if request is None else parse_generate_request("", request, stream=True).transcript
        stream = None if events is None else Version({}, _list_items(events), events)
        full_response = _merge_chunks(events or []) if body is None else body
        body_version = Version(full_response, _list_items([full_response]), [full_response])
        model = (events or [full_response])[0].get("modelVersion")
        yield build_recording(name, stream, body_version, model, transcript)


def _merge_chunks(events: list[Json]) -> Json:
    full_response = json.loads(json.dumps(events[-1]))
    candidate = list_objects(full_response.get("candidates"))[0]
    candidate["content"] = {"role": "model", "parts": [part for event in events for part in _list_parts(event)]}
    return full_response


def _list_parts(response: Json) -> list[Json]:
    return [
        part
        for candidate in list_objects(response.get("candidates"))[:1]
        for part in list_objects(candidate.get("content", {}).get("parts"))
    ]


def _list_items(responses: list[Json]) -> list[Json]:
    """Return the calls of a response, by which a recording is matched to a request, and its parts."""
    parts: list[Any] = [part for response in responses for part in _list_parts(response)]
    calls = [part["functionCall"] for part in parts if part.get("functionCall", {}).get("name")]
    return [
        *({"type": "function_call", "name": call["name"], "call_id": str(call.get("id"))} for call in calls),
        *({"type": "part", "part": part} for part in parts),
    ]
