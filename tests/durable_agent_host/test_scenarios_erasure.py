"""After a session is deleted, none of its text is found in the files of the data folder."""

from pathlib import Path

import requests

from tests.kit import PracticeModel, hosted
from tests.processes import wait_until

APP = Path(__file__).parent / "apps" / "lab"
WORD = "Hippopotamus"
OTHER_STORES = ("turn-log", "segments")
"""Files of the app's own stores, which have tests of their own."""


def files_with(data: Path, word: str) -> set[str]:
    """Name the files of the host that say a word."""
    return {
        path.name
        for path in data.rglob("*")
        if path.is_file() and not path.name.startswith(OTHER_STORES) and word.encode() in path.read_bytes()
    }


def test_no_text_of_a_deleted_session_is_left_in_the_hosts_files(model: PracticeModel, tmp_path: Path):
    """Requests, answers, tools' arguments and results, of finished, failed and copied turns; its id neither."""
    data, session = tmp_path / "data", "session-of-a-Rhinoceros"
    with hosted(data, model, app=APP, LEDGER=str(tmp_path / "ledger")) as host:
        for agent in ("Instant", "Kept"):
            for number in range(3):
                answer = host.run(agent, {"message": f"{WORD} {number}", "session_id": session})
                assert answer.status_code == 200, answer.text
        model.plan({"error": {"status": 400, "message": f"There is no {WORD}."}})
        assert host.run("Kept", {"message": f"{WORD} fails", "session_id": session}).status_code >= 400
        url = f"{host.url}/api/agents/Kept/sessions/{session}"
        fork = requests.post(f"{url}/fork", json={"session_id": f"{session}-copy"}, timeout=60)
        assert fork.status_code == 201, fork.text
        assert host.run("Kept", {"message": f"{WORD} copied", "session_id": f"{session}-copy"}).status_code == 200
        document = requests.get(f"{url}/export", timeout=60).content
        imported = requests.post(f"{url}-imported/import", data=document, timeout=60)
        assert imported.status_code < 300, imported.text
        assert files_with(data, WORD)
        assert files_with(data, session)
        for agent, name in (
            ("Instant", session),
            ("Kept", session),
            ("Kept", f"{session}-copy"),
            ("Kept", f"{session}-imported"),
        ):
            deleted = requests.delete(f"{host.url}/api/agents/{agent}/sessions/{name}", timeout=60)
            assert deleted.status_code == 200, deleted.text
        wait_until(lambda: not files_with(data, WORD))
        wait_until(lambda: not files_with(data, session))
        host.kill()
        assert not files_with(data, WORD)
