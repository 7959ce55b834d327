"""Whatever a caller sends, it is answered, and never with 500."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.durable_agent_host.hostile_requests import draw_all, exchange, seeds
from tests.kit import PracticeModel, hosted
from tests.sweeps import chooser, count

MUTATIONS = count("MUTATIONS", short=600, long=20_000)
AT_ONCE = 4


@pytest.mark.sweep
@pytest.mark.timeout(max(180, MUTATIONS))
def test_no_request_is_answered_with_500(practice_model: PracticeModel, tmp_path: Path):
    """Drawn mutations of good requests to all routes of host and app."""
    practice_model.forget()
    failures: dict[bytes, str] = {}
    statuses: Counter[int] = Counter()
    with hosted(tmp_path / "data", practice_model) as host:
        port = urlsplit(host.url).port or 0
        agent = host.get("/agents").json()["agents"][0]["name"]
        requests = draw_all(chooser("hostile requests"), seeds(agent), agent, MUTATIONS)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers = list(pool.map(lambda one: exchange(port, one), requests))
        for sent, (status, answer) in zip(requests, answers, strict=True):
            statuses[status] += 1
            if status == HTTPStatus.INTERNAL_SERVER_ERROR:
                failures[sent.encode()[:2000]] = answer[-600:].decode(errors="replace")
        assert host.get("/health").ok
    print(dict(statuses))
    assert not failures, f"{len(failures)} of {MUTATIONS}:\n" + "\n\n".join(
        f"{sent!r}\n  {answer}" for sent, answer in list(failures.items())[:20]
    )
