"""One app on one store: engine, HTTP and timers, for the host process and for tests of apps."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from functions_host.app.client_binding import ClientAddresses
from functions_host.app.durable_functions import AppDurableFunctions
from functions_host.app.function import AppFunction
from functions_host.app.invoker import Invoker
from functions_host.engine.sqlite_store import SqliteStore
from functions_host.engine.task_hub import TaskHub
from functions_host.engine.worker import Worker
from functions_host.host_json import HostSettings
from functions_host.host_names import HostNames
from functions_host.triggers.mcp import McpEndpoint
from functions_host.triggers.timers import Timers
from functions_host.web.admin_api import AdminApi
from functions_host.web.foreign_pages import PageRules
from functions_host.web.keys import Keys
from functions_host.web.management_api import ManagementApi
from functions_host.web.router import Endpoints, Router
from functions_host.web.streaming import LoopBridge, is_streaming_app, make_web_app


@dataclass(frozen=True, slots=True)
class AppContext:
    """Settings, data directory, address and options of an app.

    ``keys`` are required of callers when given; ``names`` are the host names that the host accepts, by default
    those of its ``origin``; pages of ``page_origins`` may call it.
    """

    settings: HostSettings
    data_dir: Path
    origin: str
    keys: Keys | None = None
    clock: Callable[[], float] = time.time
    names: HostNames | None = None
    page_origins: tuple[str, ...] = ()

    @property
    def addresses(self) -> ClientAddresses:
        """The host's addresses for the app's durable clients."""
        keys = self.keys
        hub_name = self.settings.hub_name
        names = self.names or HostNames(self.origin)
        if keys is None:
            return ClientAddresses(self.origin, self.origin, hub_name, names)
        return ClientAddresses(self.origin, self.origin, hub_name, names, keys.system, f"/runtime/own/{keys.own}")


class AppHost:
    """Runs the functions of one app on one store, between ``start`` and ``stop``.

    Raises:
        StartupError: a route or a timer's schedule is invalid.
    """

    def __init__(self, functions: Sequence[AppFunction], store: SqliteStore, context: AppContext) -> None:
        settings = context.settings
        addresses = context.addresses
        self._invoker = Invoker(settings.timeout_seconds)
        durable = AppDurableFunctions(functions, self._invoker, addresses)
        self.worker = Worker(store, durable, settings.durable_limits, context.clock)
        self.hub = TaskHub(self.worker, replaces_running=settings.replaces_running)
        self.timers = Timers(functions, self._invoker, addresses, context.data_dir, context.clock)
        has_tools = any(function.trigger == "mcpToolTrigger" for function in functions)
        mcp = McpEndpoint(functions, self._invoker, addresses, settings.mcp) if has_tools else None
        manage = ManagementApi(self.hub, store, addresses)
        admin = AdminApi(functions, self.timers, store.prove)
        self.http = Router(
            functions,
            self._invoker,
            Endpoints(manage.answer, admin.answer, mcp.answer if mcp else None),
            addresses,
            route_prefix=settings.route_prefix,
            streaming=LoopBridge(make_web_app(), self._invoker.loop) if is_streaming_app() else None,
            keys=context.keys,
            pages=PageRules(addresses.names, context.page_origins),
        )

    def start_functions(self) -> None:
        """Start the threads that run the app's functions."""
        self._invoker.start()

    def start_work(self) -> None:
        """Resume pending work and start the timers; call it once the server can answer the app's own requests."""
        self.worker.start()
        self.timers.start()

    async def stop(self) -> None:
        """Abandon running work; the next start runs it again."""
        await self.timers.stop()
        await self.worker.stop()
        self._invoker.stop()

    def close(self) -> None:
        """After ``stop``, wait for the end of the app's event loop; needed only in a process that continues."""
        self._invoker.close()
