"""Checks answers against the formats that clients ask for, without blocking other turns.

Most checks run in the agents' process: some keywords against some values. Larger or unpredictable ones run in their own
process, which is killed when it takes too long: a backtracking pattern holds the interpreter, and with it all turns, so
neither a thread nor a cancellation would help.
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

from durable_agent_host.errors import InvalidAnswerError, RequestError
from durable_agent_host.turn.response_format import STEPS_AT_ONCE, TooMuchToCheckError, validate_response

CHECK_SECONDS: Final = 10.0
"""Time limit for checking an answer in its own process."""

_AT_ONCE: Final = asyncio.Semaphore(2)
_KINDS: Final = {kind.__name__: kind for kind in (InvalidAnswerError, RequestError)}


async def validate_in_worker(text: str, response_format: Mapping[str, Any]) -> None:
    """Check an answer against the requested format; see `validate_response`.

    Raises:
        InvalidAnswerError: the answer does not match, or the check takes too long.
        RequestError: the format is invalid.
    """
    try:
        validate_response(text, response_format, max_steps=STEPS_AT_ONCE)
    except TooMuchToCheckError:
        async with _AT_ONCE:
            await _hold_apart(text, response_format)


async def _hold_apart(text: str, response_format: Mapping[str, Any]) -> None:
    command = (sys.executable, "-c", f"from {__name__} import worker_main as run; run()")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdin=pipe, stdout=pipe)
    try:
        input_data = json.dumps([text, response_format]).encode()
        async with asyncio.timeout(CHECK_SECONDS):
            output_data, _ = await process.communicate(input_data)
    except TimeoutError:
        raise InvalidAnswerError(
            f"checking the model's answer against response_format took longer than {CHECK_SECONDS:g} s: "
            "ask for a simpler one"
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    result: Any = json.loads(output_data) if output_data else ["", ""]
    if result is not None:
        kind, reason = result
        raise _KINDS.get(kind, InvalidAnswerError)(reason or "the answer could not be checked against response_format")


def worker_main() -> None:
    """Check standard input and write the result as JSON: null, or the error's name and text."""
    text, response_format = json.load(sys.stdin)
    result: list[str] | None = None
    try:
        validate_response(text, response_format)
    except (InvalidAnswerError, RequestError) as error:
        result = [type(error).__name__, str(error)]
    sys.stdout.write(json.dumps(result))
