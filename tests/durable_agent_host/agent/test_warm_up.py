"""What the first turn of a process needs is loaded before it, and nobody is asked for it."""

import asyncio
import subprocess
import sys
import threading

import pytest

from durable_agent_host.agent.warm_up import wait_until_warm, warm_up_in_background
from durable_agent_host.errors import LogError
from durable_agent_host.providers.generic_provider import GenericProvider
from durable_agent_host.turn_log.protocol import NullTurnLog

NEW_PROCESS = """
import logging
import sys
from pathlib import Path

from agent_framework import Agent
from agent_framework_openai import OpenAIChatClient
from durable_agent_host import DurableAgentApp
from durable_agent_host.settings import Settings

logging.basicConfig(level=logging.INFO)
LOG = Path(sys.argv[1], "log.sqlite")
opened = []
sys.addaudithook(lambda event, given: opened.append(given) if event == "socket.connect" else None)
client = OpenAIChatClient(model="m", api_key="k", base_url="http://127.0.0.1:9/v1")
app = DurableAgentApp([Agent(client, name="Joker")], settings=Settings(turn_log=f"sqlite:{LOG}"))
assert "openai.resources.responses.responses" not in sys.modules
assert not LOG.exists()
app.get_functions()

import threading

for thread in threading.enumerate():
    if thread.name == "durable-agent-warm-up":
        thread.join(60)
from openai.types.responses import ResponseTextDeltaEvent

assert "openai.resources.responses.responses" in sys.modules
assert "anyio._backends._asyncio" in sys.modules
assert ResponseTextDeltaEvent.__pydantic_complete__
assert LOG.exists()
assert not opened, opened
"""


def test_an_app_that_was_indexed_loads_the_sdk_and_opens_its_log_without_asking_anybody(tmp_path):
    """The first turn finds the SDK's module loaded, its events' parsers built, and the turn log's file there.

    The app's log has no line of it: a request to an unknown host would puzzle its reader.
    """
    command = [sys.executable, "-c", NEW_PROCESS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


class Counting(GenericProvider):
    """A provider that counts."""

    times = 0

    async def warm_up(self):
        """Count."""
        type(self).times += 1


def test_a_kind_of_provider_warms_up_once_in_a_process():
    """Several agents, and several apps of one process, have one SDK."""
    for _ in range(2):
        warm_up_in_background([Counting(), Counting()], NullTurnLog).join(30)
    assert Counting.times == 1


def test_modules_that_agents_import_late_are_loaded(tmp_path, monkeypatch):
    """What the framework imports in a first turn is there before it, and does not hold up the other turns."""
    (tmp_path / "imported_late.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    warm_up_in_background([], NullTurnLog, ["imported_late"]).join(30)
    assert "imported_late" in sys.modules


@pytest.mark.filterwarnings("error")
def test_what_cannot_be_loaded_is_left_to_the_first_turn():
    """A store that is away and an SDK that is broken are told by whoever needs them."""

    class Broken(GenericProvider):
        async def warm_up(self):
            raise ImportError("no SDK")

    def open_log():
        raise LogError("the store is away")

    thread = warm_up_in_background([Broken()], open_log)
    thread.join(30)
    assert not thread.is_alive()


async def test_a_turn_waits_for_what_is_being_loaded():
    """It would load the same beside it, on the same processor; later turns do not wait."""
    go_on, is_loaded = threading.Event(), []

    class Slow(GenericProvider):
        async def warm_up(self):
            go_on.wait(30)
            is_loaded.append(True)

    warm_up_in_background([Slow()], NullTurnLog)
    waiting = asyncio.create_task(wait_until_warm())
    await asyncio.sleep(0)
    assert not waiting.done()
    go_on.set()
    await waiting
    assert is_loaded
    await wait_until_warm()
