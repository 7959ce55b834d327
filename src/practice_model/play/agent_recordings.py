"""Recorded runs of the Azure AI Agents service; they are replayed only if a plan names them."""

import json
from pathlib import Path

from practice_model.dialects.responses.items import Json
from practice_model.play.recordings import Recording, Recordings, Version


def load_recordings(folder: Path | None) -> Recordings:
    """Load the streams of a folder by their path without ``.jsonl``; empty if the folder has none."""
    recordings: dict[str, Recording] = {}
    for provider in ("openai-assistants", "azure-ai-agents") if folder else ():
        root = Path(folder or "") / provider
        for path in root.rglob("*.jsonl"):
            events = [json.loads(line) for line in path.read_text().splitlines()]
            name = str(path.relative_to(root)).removesuffix(".jsonl").removesuffix(".events")
            version = Version({"output": []}, [], [event for event in events if event["event"] != "done"])
            recordings[name] = Recording(name, version, version)
    return Recordings(recordings)


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
