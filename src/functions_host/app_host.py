"""One app on one store, put together: engine, HTTP, timers. The host process and tests of apps both run it."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from functions_host.admin_api import AdminApi
from functions_host.app_loader import AppFunction
from functions_host.durable_client import ClientAddresses
from functions_host.durable_functions import AppDurableFunctions
from functions_host.engine.sqlite import SqliteStore
from functions_host.engine.task_hub import TaskHub
from functions_host.engine.worker import Worker
from functions_host.host_json import HostSettings
from functions_host.http_server import Endpoints, HostApp
from functions_host.http_streaming import LoopBridge, is_streaming_app, make_web_app
from functions_host.invoke import Invoker
from functions_host.keys import Keys
from functions_host.management_api import ManagementApi
from functions_host.mcp import McpEndpoint
from functions_host.timers import Timers

_HTTP_THREADS = 32


@dataclass(frozen=True, slots=True)
class AppContext:
    """What an app runs with: its settings, its data directory, its own address, and what differs from the usual.

    ``keys`` are asked for when given; ``always_replay`` keeps no orchestrator between its episodes.
    """

    settings: HostSettings
    data_dir: Path
    origin: str
    keys: Keys | None = None
    clock: Callable[[], float] = time.time
    always_replay: bool = False

    @property
    def addresses(self) -> ClientAddresses:
        """Where the app's durable clients find the host."""
        keys, hub_name = self.keys, self.settings.hub_name
        if keys is None:
            return ClientAddresses(self.origin, self.origin, hub_name)
        return ClientAddresses(self.origin, self.origin, hub_name, keys.system, f"/runtime/own/{keys.own}")


class AppHost:
    """Runs the functions of one app on one store, between ``start`` and ``stop``.

    Raises:
        StartupError: a route, or a timer's schedule, is not right.
    """

    def __init__(self, functions: Sequence[AppFunction], store: SqliteStore, context: AppContext) -> None:
        settings, addresses = context.settings, context.addresses
        self._invoker = Invoker(settings.timeout_seconds)
        self._limits = settings.durable_limits
        durable = AppDurableFunctions(
            functions, self._invoker, addresses=addresses, always_replay=context.always_replay
        )
        self.worker = Worker(store, durable, self._limits, context.clock, always_replay=context.always_replay)
        self.hub = TaskHub(self.worker)
        self.timers = Timers(functions, self._invoker, addresses, context.data_dir, context.clock)
        has_tools = any(function.trigger == "mcpToolTrigger" for function in functions)
        mcp = McpEndpoint(functions, self._invoker, addresses, settings.mcp) if has_tools else None
        manage = ManagementApi(self.hub, store, addresses)
        admin = AdminApi(functions, self.timers)
        self.http = HostApp(
            functions,
            self._invoker,
            Endpoints(manage.answer, admin.answer, mcp.answer if mcp else None),
            addresses,
            route_prefix=settings.route_prefix,
            streaming=LoopBridge(make_web_app(), self._invoker.loop) if is_streaming_app() else None,
            keys=context.keys,
        )

    @property
    def app_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop on which the app's ``async`` functions run."""
        return self._invoker.loop

    def start_functions(self) -> None:
        """Start the threads that run the app's functions."""
        limits = self._limits
        self._invoker.start(limits.activities + limits.orchestrators + limits.entities + _HTTP_THREADS)

    def start_work(self) -> None:
        """Take up what the store has pending, and start the timers; once the app's own calls can be answered."""
        self.worker.start()
        self.timers.start()

    async def stop(self) -> None:
        """Abandon what is running; it is done again by the next start."""
        await self.timers.stop()
        await self.worker.stop()
        self._invoker.stop()

    def close(self) -> None:
        """After ``stop``, wait until the app's event loop has ended; only a process that goes on needs it."""
        self._invoker.close()
