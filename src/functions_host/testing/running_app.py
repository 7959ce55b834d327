"""An app on an event loop of a test: engine, HTTP server, a frozen clock, and crashes."""

import asyncio
import contextlib
import dataclasses
import json
from pathlib import Path
from typing import Any

from starlette.types import Receive, Scope, Send

from functions_host.app.function import AppFunction
from functions_host.app_host import AppContext, AppHost
from functions_host.data_dir import DATABASE_NAME
from functions_host.engine.crash_points import arm
from functions_host.engine.task_hub import TaskHub
from functions_host.engine.worker import Limits
from functions_host.errors import StartupError
from functions_host.host_json import HostSettings
from functions_host.testing.crashes import CrashError, MortalStore
from functions_host.web.own_calls import OwnCalls
from functions_host.web.server import HostServer, open_listener

_POLL_SECONDS = 0.001
_AT_ONCE = Limits(activities=8, orchestrators=8, entities=8, entity_batch_size=5000)


class RunningApp:
    """One app on one store and port, across any number of crashes, all on one event loop."""

    def __init__(self, data_dir: Path, begin: float) -> None:
        self._data_dir = data_dir
        self._listener = open_listener("127.0.0.1", 0)
        self.port = int(self._listener.getsockname()[1])
        self.origin = f"http://127.0.0.1:{self.port}"
        self.now = begin
        self.crashes = 0
        self._restart: asyncio.Task[None] | None = None
        self._serving: asyncio.Task[None] | None = None
        self._own_calls: OwnCalls | None = None
        self._requests = 0

    @property
    def hub(self) -> TaskHub:
        """The task hub."""
        return self._host.hub

    # --- life --------------------------------------------------------------------------------

    async def open(self, functions: tuple[AppFunction, ...], settings: HostSettings) -> None:
        """Start the engine and the server."""
        self._timers = tuple(function for function in functions if function.trigger == "timerTrigger")
        self._functions = tuple(function for function in functions if function.trigger != "timerTrigger")
        settings = dataclasses.replace(settings, limits=settings.limits or _AT_ONCE)
        self._context = AppContext(settings, self._data_dir, self.origin, clock=lambda: self.now)
        asyncio.get_running_loop().set_exception_handler(_pass_over_crashes)
        ready = asyncio.Event()
        self._server = HostServer(self, ready.set)
        self._own_calls = OwnCalls(self.origin, self)
        self._open_host()
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._listener]))
        await ready.wait()

    def _open_host(self) -> None:
        self._store = MortalStore(self._data_dir / DATABASE_NAME, self._begin_again)
        self._host = AppHost(self._functions, self._store, self._context)
        self._host.start_functions()
        self._host.start_work()

    async def close(self) -> None:
        """Stop everything."""
        arm("")
        if self._own_calls is not None:
            self._own_calls.close()
        if self._restart is not None:
            await self._restart
        if self._serving is None:
            self._listener.close()
            return
        self._server.should_exit = True
        await self._serving
        await self._close_host()

    async def _close_host(self) -> None:
        await self._host.stop()
        self._host.close()
        self._store.close()

    # --- crashes -----------------------------------------------------------------------------

    async def crash(self) -> None:
        """Crash and restart."""
        with contextlib.suppress(CrashError):
            self._store.die()
        await self.wait_until_idle()

    def crash_at(self, point: str) -> None:
        """Plan a crash at a named point of the engine."""
        self._store.die_at(point)

    def crash_after(self, commits: int) -> None:
        """Plan a crash right after a number of commits."""
        self._store.die_after(commits)

    def _begin_again(self) -> None:
        self.crashes += 1
        self._restart = asyncio.create_task(self._come_back())

    async def _come_back(self) -> None:
        await self._close_host()
        self._open_host()
        self._restart = None

    # --- time --------------------------------------------------------------------------------

    async def wait_until_idle(self) -> None:
        """Wait until no function runs or is due."""
        while self._restart is not None or self._requests or not self._host.worker.is_idle:  # noqa: ASYNC110 - three states
            await asyncio.sleep(_POLL_SECONDS)

    async def advance(self, seconds: float) -> None:
        """Advance the clock, timer by timer."""
        end = self.now + seconds
        while (due := self._next_due()) is not None and due <= end:
            await self._go_to(due)
        await self._go_to(end)

    async def skip_timer(self) -> bool:
        """Advance the clock to the next timer; returns False without one."""
        due = self._next_due()
        if due is not None:
            await self._go_to(due)
        return due is not None

    def _next_due(self) -> float | None:
        return min((due for due, _ in self._store.pending_timers()), default=None)

    async def _go_to(self, moment: float) -> None:
        self.now = max(self.now, moment)
        for due, instance_id in self._store.pending_timers():
            if due <= self.now:
                self._host.worker.wake_instance(instance_id)
        await self.wait_until_idle()

    # --- functions ---------------------------------------------------------------------------

    async def run_timer(self, name: str, *, past_due: bool) -> bool:
        """Call a timer function."""
        found = next((function for function in self._timers if function.name == name), None)
        if found is None:
            names = ", ".join(function.name for function in self._timers) or "none"
            raise StartupError(f"The app has no timer function {name!r}; it has: {names}.")
        value = {"Schedule": {"AdjustForDST": True}, "ScheduleStatus": None, "IsPastDue": past_due}
        return await self._host.timers.call(found, json.dumps(value))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request with the current host."""
        self._requests += 1
        try:
            await self._host.http(scope, receive, send)
        except CrashError:
            await send({"type": "http.response.start", "status": 503, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})
        finally:
            self._requests -= 1


def _pass_over_crashes(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Suppress the errors of tasks that died in a crash."""
    with contextlib.suppress(CrashError):
        if not isinstance(context.get("exception"), CrashError):
            loop.default_exception_handler(context)
