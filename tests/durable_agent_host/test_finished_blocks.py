"""What callers see of every recording is what its finished blocks say."""

import os
from collections.abc import Iterator

import pytest

from tests.durable_agent_host.finished_blocks import differences
from tests.durable_agent_host.hostile_model import HostileModel, hostile_model
from tests.durable_agent_host.played_recordings import play, read_events, recorded_files, to_wire
from tests.kit import RECORDINGS

pytestmark = [
    pytest.mark.recordings,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*is discouraged:DeprecationWarning"),  # Google's SDK subclasses aiohttp's
]
WITHOUT_ANSWER = ("pause-turn-web-search-stream/01", "error-failed-quota")
"""Recordings whose answer is in another recording, or that end with an error."""


@pytest.fixture(scope="module")
def model() -> Iterator[HostileModel]:
    """An endpoint that plays recordings."""
    with hostile_model() as running:
        yield running


@pytest.mark.drawn(30)
@pytest.mark.parametrize("name", recorded_files() if RECORDINGS.is_dir() else ["none"])
def test_events_and_answer_say_what_the_finished_blocks_say(model: HostileModel, name: str):
    """Texts, citations, arguments and outcomes, in the events, the answer and the steps."""
    if not RECORDINGS.is_dir():
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no recordings: set RECORDINGS_DIR")
    kind = name.partition("/")[0]
    recorded_events = read_events(name)
    played = play(model, kind, to_wire(kind, recorded_events))
    if not any(part in name for part in WITHOUT_ANSWER):
        assert played.outcome.status in {"completed", "suspended"}, played.outcome.error
        assert differences(kind, recorded_events, played) == []
