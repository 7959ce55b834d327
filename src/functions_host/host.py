"""The composition root: serves one app folder with one data directory on one port until a signal stops it."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from functions_host.app.function import AppFunction
from functions_host.app.loader import load_app
from functions_host.app.logs import show_app
from functions_host.app_host import AppContext, AppHost
from functions_host.data_dir import claim_data_dir, database_path, make_private
from functions_host.engine.crash_points import arm
from functions_host.engine.database import StoreError
from functions_host.engine.sqlite_store import SqliteStore
from functions_host.errors import StartupError
from functions_host.host_json import read_host_settings
from functions_host.host_names import HostNames, check_names
from functions_host.log_secrets import mask_log_output
from functions_host.memory import return_large_blocks
from functions_host.settings import apply_local_settings, prepare_environment, read_stop_seconds
from functions_host.startup_report import list_functions, list_oddities
from functions_host.web.body_limit import BodyLimit, read_body_limit
from functions_host.web.keys import KEYS_NAME, load_keys
from functions_host.web.middleware import MiddlewareSettings, RequestLog, add_middleware
from functions_host.web.own_calls import OwnCalls
from functions_host.web.server import HostServer, open_listener

_logger = logging.getLogger(__name__)
_DEFAULT_PORT = 7071
_KILLED_STATUS = 130
_POLL_SECONDS = 0.05
_ANY_ADDRESSES = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - compared, not bound


@dataclass(frozen=True, slots=True)
class StartOptions:
    """Options of ``start``; the directories are absolute, ``port`` is None when not given.

    ``allowed_hosts`` are additional host names that the host accepts.
    """

    app_dir: Path
    data_dir: Path
    host: str
    port: int | None
    verbose: bool = False
    enable_auth: bool = False
    allowed_hosts: tuple[str, ...] = ()


def run_host(options: StartOptions) -> None:
    """Run the host until SIGTERM or SIGINT.

    Raises:
        StartupError: the host cannot start.
    """
    if not options.app_dir.is_dir():
        raise StartupError(f"There is no folder {options.app_dir}; pass the app's folder with --app DIR.")
    mask_log_output()
    return_large_blocks()
    with contextlib.closing(claim_data_dir(options.data_dir)):
        prepared_host = _prepare(options)
        with contextlib.closing(
            open_store(database_path(options.data_dir, prepared_host.context.settings.hub_name))
        ) as store:
            asyncio.run(_serve(options, prepared_host, store))


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What a start reads and loads before it opens the store."""

    middleware: MiddlewareSettings
    context: AppContext
    functions: tuple[AppFunction, ...]
    listener: socket.socket
    stop_seconds: float


def _prepare(options: StartOptions) -> _Prepared:
    local = apply_local_settings(options.app_dir, os.environ)
    requested_port = next(port for port in (options.port, local.port, _DEFAULT_PORT) if port is not None)
    listener = open_listener(options.host, requested_port)
    port = int(listener.getsockname()[1])
    settings = read_host_settings(options.app_dir, os.environ)
    prepare_environment(options.app_dir, options.data_dir, port, os.environ)
    show_app(settings.log_levels)
    gc.disable()  # what is loaded stays: walking it meanwhile takes a seventh of the loading
    try:
        functions = load_app(options.app_dir)
    finally:
        gc.enable()
    gc.freeze()  # what the app has loaded stays: without this, each full collection walks it, some 70 ms
    keys = load_keys(options.data_dir) if options.enable_auth else None
    mask_log_output(keys.all if keys else ())
    origin = f"http://{_displayed_host(options.host)}:{port}"
    context = AppContext(
        settings,
        options.data_dir,
        origin,
        keys=keys,
        names=HostNames(origin, options.host, (*options.allowed_hosts, *local.allowed_hosts)),
        page_origins=local.cors_origins,
    )
    check_names((*options.allowed_hosts, *local.allowed_hosts))
    max_body_bytes = read_body_limit(os.environ)
    arm_crash(os.environ)
    middleware = MiddlewareSettings(context.addresses.names, local, max_body_bytes, log_requests=options.verbose)
    return _Prepared(middleware, context, functions, listener, read_stop_seconds(os.environ))


def arm_crash(environment: Mapping[str, str]) -> None:
    """Plan the crash named by ``FUNCTIONS_HOST_CRASH``, for tests; see ``engine.crash_points``.

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
        StartupError: it is damaged, of another version, or not writable; it stays unchanged.
    """
    limit = os.environ.get("FUNCTIONS_HOST_MAX_DATABASE_BYTES", "")
    make_private(path)
    try:
        return SqliteStore(path, max_bytes=int(limit) if limit.isdigit() else None)
    except StoreError as error:
        raise StartupError(f"{error}; or pass another data directory with --data DIR.") from error


async def _serve(options: StartOptions, prepared_host: _Prepared, store: SqliteStore) -> None:
    middleware = prepared_host.middleware
    context = prepared_host.context
    functions = prepared_host.functions
    host = AppHost(functions, store, context)
    host.start_functions()

    http_app = add_middleware(host.http, middleware)
    own_app = BodyLimit(host.http, middleware.max_body_bytes)
    own_app = RequestLog(own_app) if middleware.log_requests else own_app

    own_calls: list[OwnCalls] = []

    def announce() -> None:
        # Written at once: whoever waits for the first line may close the pipe after it.
        print(_announcement(options, context, functions), flush=True)  # noqa: T201
        own_calls.append(OwnCalls(context.addresses.own_origin, own_app))
        host.start_work()

    for sentence in list_oddities(functions):
        _logger.warning("%s", sentence)
    if "*" in middleware.local.cors_origins:
        _logger.warning("Host.CORS is '*': every page in a browser on this machine may read and call all of this host.")
    server = HostServer(http_app, announce)
    loop = asyncio.get_running_loop()
    stop = _Stop(server, host, prepared_host.stop_seconds)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.proceed)
    await server.serve(sockets=[prepared_host.listener])
    for calls in own_calls:
        calls.close()
    await host.stop()


def _announcement(options: StartOptions, context: AppContext, functions: tuple[AppFunction, ...]) -> str:
    lines = [f"Functions host ready: {context.origin} ({len(functions)} functions, data in {options.data_dir})"]
    prefix = context.settings.route_prefix
    if hint := os.environ.get("FUNCTIONS_HOST_HINT"):  # from who starts the host, with the URL of the functions for {}
        lines.append(hint.replace("{}", f"{context.origin}/{prefix}".rstrip("/")))
    if options.verbose:
        lines.append(list_functions(functions, context.origin, prefix))
    if context.keys:
        lines.append(f"Keys, as header x-functions-key or query parameter code: in {options.data_dir / KEYS_NAME}")
    return "\n".join(lines)


class _Stop:
    """Stops the host: at the first signal it takes no new work, and what runs has its time; a second one ends that.

    Args:
        server: is shut down in the end.
        host: whose work ends before that.
        seconds: how long it may take.
    """

    def __init__(self, server: HostServer, host: AppHost, seconds: float) -> None:
        self._server = server
        self._host = host
        self._seconds = seconds
        self._drain: asyncio.Task[None] | None = None

    def proceed(self) -> None:
        """Go one step further; called for each signal."""
        if self._server.should_exit:
            os._exit(_KILLED_STATUS)  # asked again: nothing that is committed can be lost
        if self._drain is not None:
            self._server.should_exit = True
            return
        self._server.reject_requests()
        self._host.worker.close()
        self._server.should_exit = self._host.worker.is_idle
        self._drain = asyncio.get_running_loop().create_task(self._wait())

    async def _wait(self) -> None:
        if not self._server.should_exit:
            _logger.warning(
                "Stopping. What runs has %g s to end; a second signal cuts it off, and the next start resumes it.",
                self._seconds,
            )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                while not self._server.should_exit and not self._host.worker.is_idle:  # noqa: ASYNC110 - of many jobs
                    await asyncio.sleep(_POLL_SECONDS)
        self._server.should_exit = True


def _displayed_host(host: str) -> str:
    display_name = _ANY_ADDRESSES.get(host, host)
    return f"[{display_name}]" if ":" in display_name and not display_name.startswith("[") else display_name
