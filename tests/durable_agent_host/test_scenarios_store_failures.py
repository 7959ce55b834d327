"""What clients of agents see when the host's data folder is gone."""

import shutil
from pathlib import Path

from tests.kit import PracticeModel, running_host


def test_a_deleted_data_folder_is_a_503_at_once(practice_model: PracticeModel, tmp_path: Path):
    """Of a turn, and of a session; nothing hangs, and nothing is answered as if it were kept."""
    data = tmp_path / "data"
    with running_host(data, practice_model) as host:
        agent = "BugRepro"
        assert host.run(agent, {"message": "Hello", "session_id": "kept"}).ok
        shutil.rmtree(data)
        response = host.run(agent, {"message": "Hello again", "session_id": "kept"})
        assert (response.status_code, response.headers.get("Retry-After")) == (503, "5"), response.text
        detail = response.json()["detail"]  # the log is looked at first, unless it was writable less than a second ago
        assert "durable store" in detail or "turn log" in detail
        assert host.get(f"/agents/{agent}/sessions/kept").status_code in {500, 503}
        assert host.get("/health").status_code == 503
