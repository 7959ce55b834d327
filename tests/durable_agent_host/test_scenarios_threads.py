"""Entities that run an agent hold threads that orchestrators need: with as few threads as on Azure, that is told."""

import os
from concurrent.futures import ThreadPoolExecutor

from tests.durable_agent_host.conftest import PEOPLE
from tests.kit import PracticeModel, hosted
from tests.processes import wait_until

AZURE_THREADS = min(32, (os.process_cpu_count() or 1) + 4)


def test_runs_of_entities_that_hold_all_threads_are_named(practice_model: PracticeModel, tmp_path):
    """While as many entities run an agent as there are threads, a turn waits, and the log says for whom."""
    practice_model.forget()
    slow = {"text": "slow " * 40, "delay_milliseconds": 250}
    practice_model.plan(slow, times=AZURE_THREADS, user_text="hold")
    practice_model.plan({"text": "Quick."}, user_text="hi")
    with hosted(tmp_path / "data", practice_model, app=PEOPLE) as host, ThreadPoolExecutor(AZURE_THREADS) as callers:

        def hold(number: int) -> str:
            payload = {"message": "hold", "correlationId": f"c-{number}"}
            return host.orchestrate("call_once", {"entity": ["dafx-Talker", f"s{number}"], "payload": payload})[
                "runtimeStatus"
            ]

        held = [callers.submit(hold, number) for number in range(AZURE_THREADS)]
        wait_until(lambda: len(practice_model.requests()) == AZURE_THREADS)
        assert host.run("Talker", "hi").text == "Quick."
        assert [one.result() for one in held] == ["Completed"] * AZURE_THREADS
        told = [line for line in host.output if "for a thread" in line]
    assert len(told) == 1
    assert f"are held by 'dafx-Talker' ({AZURE_THREADS})" in told[0]
    assert "PYTHON_THREADPOOL_THREAD_COUNT" in told[0]
