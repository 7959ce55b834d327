"""Recorded runs of the Azure AI Agents service, as responses for its player."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from practice_model.dialects.responses.items import Json


@dataclass(frozen=True)
class _Version:
    """A recorded stream, with the attributes that the player reads."""

    events: list[Json]
    response: Json = field(default_factory=lambda: {"output": []})
    output: list[Json] = field(default_factory=list[Json])


@dataclass(frozen=True)
class _Recording:
    stream_version: _Version
    body_version: _Version


class AgentRecordings:
    """Streams in a folder, by their relative path without ``.jsonl``.

    Args:
        folder: folder with a subfolder for each provider; None without recordings.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def find_matching(self, _parsed_request: Any) -> None:
        """Return None: recorded runs are replayed only if a plan names them."""

    def find(self, name: str) -> _Recording:
        """Read a recording.

        Raises:
            KeyError: no recording has this name.
        """
        for provider in ("azure-ai-agents", "openai-assistants"):
            path = (self._folder or Path()) / provider / f"{name}.jsonl"
            if self._folder is not None and path.is_file():
                lines = path.read_text().splitlines()
                events = [event for line in lines if (event := json.loads(line))["event"] != "done"]
                return _Recording(_Version(events), _Version(events))
        raise KeyError(name)


def with_run_ids(events: list[Json], run: Json) -> list[Json]:
    """Return a recorded stream with the ids of the run that replays it."""
    run_objects = [
        event["data"] for event in events if event["event"].startswith("thread.run.") and "step" not in event["event"]
    ]
    text = json.dumps(events)
    for name in ("id", "thread_id", "assistant_id"):
        if run_objects and run_objects[0].get(name):
            text = text.replace(run_objects[0][name], run[name])
    return json.loads(text)
