"""The composition root: one app folder, one data directory, one port, until a signal says stop."""

import asyncio
import gc
import logging
import os
import signal
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from functions_host.app_host import AppContext, AppHost
from functions_host.app_loader import AppFunction, load_app
from functions_host.data_dir import DATABASE_NAME, claim_data_dir
from functions_host.engine.crash import arm
from functions_host.engine.database import StoreError
from functions_host.engine.sqlite import SqliteStore
from functions_host.errors import StartupError
from functions_host.host_json import read_host_settings
from functions_host.http_server import HostServer, RequestLog, open_listener
from functions_host.keys import load_keys
from functions_host.listing import list_functions, list_keys, list_oddities
from functions_host.settings import LocalHost, apply_local_settings, prepare_environment

_logger = logging.getLogger(__name__)
_DEFAULT_PORT = 7071
_KILLED_STATUS = 130
_ANY_ADDRESSES = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - compared, not bound


@dataclass(frozen=True, slots=True)
class StartOptions:
    """What ``start`` was asked for; the directories are absolute, ``port`` is None when none was named."""

    app_dir: Path
    data_dir: Path
    host: str
    port: int | None
    verbose: bool = False
    enable_auth: bool = False


def run_host(options: StartOptions) -> None:
    """Run the host until SIGTERM or SIGINT.

    Raises:
        StartupError: it cannot start.
    """
    if not options.app_dir.is_dir():
        raise StartupError(f"There is no folder {options.app_dir}; pass the app's folder with --app DIR.")
    lock = claim_data_dir(options.data_dir)
    local = apply_local_settings(options.app_dir, os.environ)
    wanted_port = next(port for port in (options.port, local.port, _DEFAULT_PORT) if port is not None)
    listener = open_listener(options.host, wanted_port)
    port = int(listener.getsockname()[1])
    settings = read_host_settings(options.app_dir, os.environ)
    prepare_environment(options.app_dir, options.data_dir, port, os.environ)
    functions = load_app(options.app_dir)
    gc.freeze()  # what the app has loaded stays: without this, each full collection walks it, some 70 ms
    context = AppContext(
        settings,
        options.data_dir,
        f"http://{_shown_host(options.host)}:{port}",
        keys=load_keys(options.data_dir) if options.enable_auth else None,
        always_replay=os.environ.get("FUNCTIONS_HOST_ALWAYS_REPLAY", "").lower() in {"1", "true"},
    )
    arm_crash(os.environ)
    store = open_store(options.data_dir / DATABASE_NAME)
    try:
        asyncio.run(_serve(options, local, context, functions, store, listener))
    finally:
        store.close()
        lock.close()


def arm_crash(environment: Mapping[str, str]) -> None:
    """Plan the crash that ``FUNCTIONS_HOST_CRASH`` names, for tests; see ``engine.crash``.

    Raises:
        StartupError: there is no such crash point.
    """
    try:
        arm(environment.get("FUNCTIONS_HOST_CRASH", ""))
    except ValueError as error:
        raise StartupError(f"FUNCTIONS_HOST_CRASH: {error}") from error


def open_store(path: Path) -> SqliteStore:
    """Open the engine's file.

    Raises:
        StartupError: it is damaged, of another version, or cannot be written to; it is left as it is.
    """
    limit = os.environ.get("FUNCTIONS_HOST_MAX_DATABASE_BYTES", "")
    try:
        return SqliteStore(path, max_bytes=int(limit) if limit.isdigit() else None)
    except StoreError as error:
        raise StartupError(f"{error}; or pass another data directory with --data DIR.") from error


async def _serve(  # noqa: PLR0917 - what main has prepared
    options: StartOptions,
    local: LocalHost,
    context: AppContext,
    functions: tuple[AppFunction, ...],
    store: SqliteStore,
    listener: socket.socket,
) -> None:
    host = AppHost(functions, store, context)
    host.start_functions()

    def announce() -> None:
        # Written at once: whoever waits for the first line may close the pipe after it.
        print(_announcement(options, context, functions), flush=True)  # noqa: T201
        host.start_work()

    for sentence in list_oddities(functions):
        _logger.warning("%s", sentence)
    server = HostServer(_wrap(host.http, local, log_requests=options.verbose), announce)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop, server)
    await server.serve(sockets=[listener])
    await host.stop()


def _wrap(app: ASGIApp, local: LocalHost, *, log_requests: bool) -> ASGIApp:
    if local.cors_origins:
        app = CORSMiddleware(
            app,
            allow_origins=local.cors_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            allow_credentials=local.cors_credentials,
        )
    return RequestLog(app) if log_requests else app


def _announcement(options: StartOptions, context: AppContext, functions: tuple[AppFunction, ...]) -> str:
    served = sum(function.is_served for function in functions)
    lines = [f"Functions host ready: {context.origin} ({served} functions, data in {options.data_dir})"]
    if functions:
        lines.append(list_functions(functions, context.origin, context.settings.route_prefix))
    if context.keys is not None:
        lines.append(f"Keys, as header x-functions-key or query parameter code:\n{list_keys(context.keys)}")
    return "\n".join(lines)


def _stop(server: HostServer) -> None:
    if server.should_exit:
        os._exit(_KILLED_STATUS)  # asked twice: nothing that is committed can be lost
    server.should_exit = True


def _shown_host(host: str) -> str:
    shown = _ANY_ADDRESSES.get(host, host)
    return f"[{shown}]" if ":" in shown and not shown.startswith("[") else shown
