"""The stand-ins served over real HTTP, with the recordings folder."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import RECORDINGS
from tests.practice_model.conftest import PracticeModelClient, serve
from tests.stand_ins.server import StandIns


@pytest.fixture(scope="session")
def recordings_dir() -> Path:
    """The recordings folder; tests are skipped without it, but it is required in CI."""
    if not RECORDINGS.is_dir():
        reason = "recordings folder not found: set RECORDINGS_DIR"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    return RECORDINGS


@pytest.fixture(scope="session")
def _shared_player(recordings_dir: Path) -> Iterator[PracticeModelClient]:
    yield from serve(StandIns(recordings_dir, seed="player").app)


@pytest.fixture
def player(_shared_player: PracticeModelClient) -> PracticeModelClient:
    """The stand-ins with recordings, plans and request log emptied."""
    _shared_player.http.delete("/practice/plans")
    _shared_player.http.delete("/practice/requests")
    return _shared_player
