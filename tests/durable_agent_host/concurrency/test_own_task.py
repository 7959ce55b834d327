"""Code of others in a task of its own."""

import asyncio

import pytest

from durable_agent_host.agent.layers.run_tool import in_own_task


def test_what_has_ended_just_before_a_cancel_is_not_lost():
    """The caller goes on as if the code had run within it, and is cancelled where it waits next."""
    done: list[str] = []

    async def caller() -> None:
        caller_task = asyncio.current_task()
        assert caller_task is not None

        async def operation() -> None:
            asyncio.get_running_loop().call_soon(caller_task.cancel)

        await in_own_task(operation)
        done.append("work")
        assert caller_task.cancelling() == 1
        await asyncio.sleep(0)
        done.append("more")

    async def run() -> None:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(caller())

    asyncio.run(run())
    assert done == ["work"]


def test_a_cancel_reaches_the_code_and_its_caller():
    """The code is cancelled where it waits, and may take its time to end."""
    done: list[str] = []

    async def operation() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            done.append("cleaned up")

    async def run() -> None:
        task = asyncio.create_task(in_own_task(operation))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert done == ["cleaned up"]
