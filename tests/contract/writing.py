"""A process that appends to a log until it is fenced or killed, and says what was acknowledged.

``python -m tests.contract.writing BACKEND ARGUMENTS LOG_ID`` prints a JSON line for each append: where it begins, and
its text.
"""

import asyncio
import itertools
import json
import sys

from durable_agent_host.errors import FencedError
from durable_agent_host.model.log_entry import EVENT, LogEntry
from tests.contract import conftest

FENCED = 7
"""The exit status of a writer that a later attempt has fenced."""


async def write(backend: conftest.Backend, log_id: str) -> None:
    """Append pairs of entries for as long as the log takes them."""
    log = backend.store()
    attempt = await log.open(log_id)
    try:
        for number in itertools.count():
            text = f"{attempt}:{number}"
            pair = [LogEntry(EVENT, {"event": "message.delta", "data": {"text": text + half}}) for half in "ab"]
            print(json.dumps([await log.append(log_id, pair, attempt=attempt), text]), flush=True)
    except FencedError:
        sys.exit(FENCED)
    finally:
        await log.close()


if __name__ == "__main__":
    name, arguments, log_id = sys.argv[1:]
    asyncio.run(write(getattr(conftest, name)(*json.loads(arguments)), log_id))
