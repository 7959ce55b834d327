"""The event loop of all agents of a process."""

import subprocess
import sys

PROGRAM = """
import asyncio, sys, threading
from durable_agent_host.agent.agent_event_loop import submit

async def which_loop():
    return id(asyncio.get_running_loop())

def first_turn():
    together.wait()
    loops.add(submit(which_loop()).result())

sys.setswitchinterval(1e-6)
loops, together = set(), threading.Barrier(16)
threads = [threading.Thread(target=first_turn) for _ in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(loops))
"""


def test_turns_that_arrive_together_share_one_loop():
    """Activities and entities that a restarted process begins at once find one loop: clients are bound to theirs."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "1"
