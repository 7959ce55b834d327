"""What callers may send beside a message: refused with 400, or left out, before a turn begins."""

from uuid import uuid4

import requests

from tests.kit import AgentHost, PracticeModel


def test_what_follows_a_traceparent_is_not_kept(people: AgentHost, model: PracticeModel):
    """A later version may append anything; the turn's input has version, ids and flags alone."""
    model.plan({"text": "Done."})
    trace = f"01-{uuid4().hex}-{uuid4().hex[:16]}-01"
    answer = people.run("Talker", {"message": "hi"}, headers={"traceparent": f"{trace}-tail.canary@example.com"})
    assert answer.status_code == 200, answer.text
    url = f"{people.management}/instances/{answer.headers['x-ms-turn-id']}?showInput=true&showHistory=true"
    shown = requests.get(url, timeout=30).text
    assert (trace[3:35] in shown, "tail.canary" in shown) == (True, False)
