"""Recorded runs of the Azure AI Agents service, as answers for its player."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from practice_model.dialects.responses.items import Json


@dataclass(frozen=True)
class _Version:
    """A recorded stream, in the form in which the player takes recordings."""

    events: list[Json]
    response: Json = field(default_factory=lambda: {"output": []})
    output: list[Json] = field(default_factory=list[Json])


@dataclass(frozen=True)
class _Recording:
    streamed: _Version
    whole: _Version


class AgentRecordings:
    """Streams below a folder, by their path in it without ``.jsonl``.

    Args:
        folder: with a folder for each provider; None without recordings.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def matching(self, _reading: Any) -> None:
        """Return None: recorded runs are played when a plan names them."""

    def find(self, name: str) -> _Recording:
        """Read a recording.

        Raises:
            KeyError: there is none of this name.
        """
        for provider in ("azure-ai-agents", "openai-assistants"):
            path = (self._folder or Path()) / provider / f"{name}.jsonl"
            if self._folder is not None and path.is_file():
                lines = path.read_text().splitlines()
                events = [one for line in lines if (one := json.loads(line))["event"] != "done"]
                return _Recording(_Version(events), _Version(events))
        raise KeyError(name)


def as_run(events: list[Json], run: Json) -> list[Json]:
    """Give a recorded stream the ids of a run that plays it. Guarantee: pure.

    Args:
        events: as recorded.
        run: of this server.
    """
    data = [one["data"] for one in events if one["event"].startswith("thread.run.") and "step" not in one["event"]]
    text = json.dumps(events)
    for name in ("id", "thread_id", "assistant_id"):
        if data and data[0].get(name):
            text = text.replace(data[0][name], run[name])
    return json.loads(text)
