"""The composition root: one app folder, one data directory, one port, until a signal says stop."""

import asyncio
import logging
import os
import signal
import socket
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from functions_host.app_loader import AppFunction, load_app
from functions_host.data_dir import DATABASE_NAME, claim_data_dir
from functions_host.engine.sqlite import SqliteStore, StoreVersionError
from functions_host.engine.task_hub import TaskHub
from functions_host.engine.worker import Worker
from functions_host.errors import StartupError
from functions_host.http_server import HostApp, HostServer, open_listener
from functions_host.durable_functions import AppDurableFunctions
from functions_host.invoke import Invoker
from functions_host.management_api import ManagementApi
from functions_host.settings import HostSettings, apply_local_settings, prepare_environment, read_host_settings

_logger = logging.getLogger(__name__)
_HTTP_THREADS = 32
_ANY_ADDRESSES = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - compared, not bound


@dataclass(frozen=True, slots=True)
class StartOptions:
    """What ``start`` was asked for; the directories are absolute."""

    app_dir: Path
    data_dir: Path
    host: str
    port: int
    verbose: bool = False


def run_host(options: StartOptions) -> None:
    """Run the host until SIGTERM or SIGINT.

    Raises:
        StartupError: it cannot start.
    """
    if not options.app_dir.is_dir():
        raise StartupError(f"There is no folder {options.app_dir}; pass the app's folder with --app DIR.")
    lock = claim_data_dir(options.data_dir)
    listener = open_listener(options.host, options.port)
    port = int(listener.getsockname()[1])
    apply_local_settings(options.app_dir, os.environ)
    settings = read_host_settings(options.app_dir, os.environ)
    prepare_environment(options.app_dir, options.data_dir, port, os.environ)
    functions = load_app(options.app_dir)
    store = open_store(options.data_dir / DATABASE_NAME)
    try:
        asyncio.run(_serve(options, settings, functions, store, listener))
    finally:
        store.close()
        lock.close()


def open_store(path: Path) -> SqliteStore:
    """Open the engine's file.

    Raises:
        StartupError: it is damaged, of another version, or cannot be written to; it is left as it is.
    """
    try:
        return SqliteStore(path)
    except StoreVersionError as error:
        raise StartupError(f"{error}; pass another data directory with --data DIR.") from error
    except sqlite3.Error as error:
        raise StartupError(
            f"The database {path} cannot be opened ({error}); move it away, or pass another data directory with "
            "--data DIR."
        ) from error


async def _serve(
    options: StartOptions,
    settings: HostSettings,
    functions: tuple[AppFunction, ...],
    store: SqliteStore,
    listener: socket.socket,
) -> None:
    limits = settings.durable_limits
    invoker = Invoker()
    invoker.start(limits.activities + limits.orchestrators + limits.entities + _HTTP_THREADS)
    origin = f"http://{_shown_host(options.host)}:{listener.getsockname()[1]}"
    always_replay = os.environ.get("FUNCTIONS_HOST_ALWAYS_REPLAY", "").lower() in {"1", "true"}
    durable = AppDurableFunctions(
        functions, invoker, origin=origin, hub_name=settings.hub_name, always_replay=always_replay
    )
    worker = Worker(store, durable, limits, always_replay=always_replay)
    api = ManagementApi(TaskHub(worker), store, settings.hub_name)
    app = HostApp(
        functions,
        invoker,
        api.answer,
        route_prefix=settings.route_prefix,
        hub_name=settings.hub_name,
        rpc_origin=origin,
    )

    def announce() -> None:
        served = sum(function.is_served for function in functions)
        print(f"Functions host ready: {origin} ({served} functions, data in {options.data_dir})", flush=True)  # noqa: T201
        worker.start()

    _warn_of_unserved(functions)
    server = HostServer(app, log_requests=options.verbose, on_ready=announce)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop, server)
    await server.serve(sockets=[listener])
    await worker.stop()
    invoker.stop()


def _stop(server: HostServer) -> None:
    server.force_exit = server.should_exit
    server.should_exit = True


def _shown_host(host: str) -> str:
    shown = _ANY_ADDRESSES.get(host, host)
    return f"[{shown}]" if ":" in shown and not shown.startswith("[") else shown


def _warn_of_unserved(functions: Iterable[AppFunction]) -> None:
    unserved = [f"{function.name} ({function.trigger})" for function in functions if not function.is_served]
    if unserved:
        _logger.warning("This host does not serve: %s.", ", ".join(unserved))
