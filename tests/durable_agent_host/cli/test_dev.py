"""``durable-agent-host dev``, as who writes an app meets it."""

from pathlib import Path

import requests

from tests.durable_agent_host.cli.terminal import CTRL_C, Terminal
from tests.processes import READY_LINE, wait_until

APP = """
from agent_framework import Agent, tool
from durable_agent_host import DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment
from prices import look_up

@tool(approval_mode="always_require")
def refund(order: str) -> str:
    return f"refunded {order}"

def price(item: str) -> str:
    return look_up(item)

client = chat_client_from_environment()
app = DurableAgentApp(agents=[Agent(client, "Help.", name="Desk", tools=[refund, price])])
"""
PRICES = "PRICES = {'pen': 2}\n\ndef look_up(item):\n    return str(PRICES[item])\n"


def test_an_app_is_developed_in_a_terminal(tmp_path: Path):
    """Without a key the practice model answers; lines say what happens, with the app's frames; changes are loaded."""
    app = tmp_path / "app"
    app.mkdir()
    (app / "host.json").write_text('{"version": "2.0"}')
    (app / "function_app.py").write_text(APP)
    (app / "prices.py").write_text(PRICES)
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/visited\n')
    browser.chmod(0o700)
    with Terminal("dev", "--app", str(app), "--port", "0", BROWSER=f"{browser} %s") as terminal:
        terminal.sees("no key of a model's service is set")
        wait_until(lambda: READY_LINE.findall(terminal.text))
        url = READY_LINE.findall(terminal.text)[-1]

        def run(message: str) -> None:
            assert requests.post(f"{url}/api/agents/Desk/run", data=message, timeout=60).status_code in {200, 202}

        wait_until((tmp_path / "visited").exists)
        assert (tmp_path / "visited").read_text() == f"{url}/api/inspector\n"
        run('Call price with {"item": "pen"}')
        terminal.sees("→ price(item='pen')")
        terminal.sees("← price: success in ")
        terminal.sees("✓ completed in ")
        assert "\x1b[" in terminal.raw.decode()
        run('Call price with {"item": "ink"}')
        screen = terminal.sees("✗ price: error in ")
        trace = screen.partition("KeyError: 'ink'")[2].partition("✗")[0]
        assert [line.split('"')[1] for line in trace.splitlines() if line.startswith("  File")] == [
            str(app / "function_app.py"),
            str(app / "prices.py"),
        ]
        requests.post(f"{url}/api/agents/Desk/run?wait=false", data='Call refund with {"order": "7"}', timeout=60)
        terminal.sees("? refund waits")
        (app / "prices.py").write_text(f"{PRICES}\nraise ValueError('not yet')\n")
        screen = terminal.sees("Waiting for a change of the app's files.")
        assert "site-packages" not in screen
        assert f'File "{app}/prices.py", line 6' in screen
        (app / "prices.py").write_text(PRICES.replace("2", "3"))
        wait_until(lambda: len(READY_LINE.findall(terminal.text)) == 2)
        run('Call price with {"item": "pen"}')
        terminal.sees("← price: success in ", times=2)
        assert terminal.text.rpartition("← price")[2].partition("\n")[0].endswith(": 3")
        terminal.type(CTRL_C)
        assert terminal.wait_for_exit() == 0
    assert len((tmp_path / "visited").read_text().splitlines()) == 1
