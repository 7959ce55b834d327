"""The command line: ``python -m functions_host start``."""

import argparse
import atexit
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_EXIT_SECONDS = 3.0
"""How long what the app registered to run at exit may take: an exporter whose collector is gone tries for longer."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    remaining_arguments = list(sys.argv[1:] if arguments is None else arguments)
    program = "functions_host"
    if remaining_arguments[:1] == ["--called"]:
        program = remaining_arguments[1]
        remaining_arguments = remaining_arguments[2:]
    parser = argparse.ArgumentParser(program, description="A local host for Python function apps.")
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser(
        "start", help="run the app of a folder", description="Run the function app of a folder.", allow_abbrev=False
    )
    _add_start_arguments(start)
    return _run_start(parser.parse_args(remaining_arguments), remaining_arguments[1:])


def _add_start_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``start`` to a parser."""
    parser.add_argument("--app", type=Path, default=Path(), metavar="DIR", help="the app's folder (default: .)")
    parser.add_argument(
        "--port", type=int, help="0 takes a free one (default: LocalHttpPort in local.settings.json, or 7071)"
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="where state is kept (default: APP/.functions-host)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="list the functions, and log requests, one line each"
    )
    parser.add_argument("--reload", action="store_true", help="restart when a .py or .json file of the app changes")
    parser.add_argument("--enable-auth", action="store_true", help="ask for keys, as Azure does")
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a further name that the host answers to, as of a tunnel; may be given more than once",
    )


def _run_start(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Run the host until it stops; a failed start prints one sentence on stderr and returns 1."""
    try:
        return _start(options, arguments)
    except KeyboardInterrupt:  # while the host or the app was imported
        return 130


def _start(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    from functions_host.app.logs import start_logs  # noqa: PLC0415 - what --help does not need
    from functions_host.data_dir import DEFAULT_NAME  # noqa: PLC0415
    from functions_host.errors import StartupError  # noqa: PLC0415
    from functions_host.host import StartOptions, run_host  # noqa: PLC0415

    start_logs(verbose=options.verbose)
    app_dir = options.app.resolve()
    data_dir = (options.data or app_dir / DEFAULT_NAME).resolve()
    try:
        if options.reload and app_dir.is_dir():
            return _run_reloading(options, arguments, app_dir, data_dir)
        run_host(
            StartOptions(
                app_dir,
                data_dir,
                options.host,
                options.port,
                options.verbose,
                options.enable_auth,
                tuple(options.allow_host),
            )
        )
    except StartupError as error:
        print(f"{error.trace}Error: {error}", file=sys.stderr)
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    else:
        return 0
    if "WATCHFILES_CHANGES" in os.environ:  # set for a host that starts again
        print("Waiting for a change of the app's files.", file=sys.stderr)
    return 1


def _run_reloading(options: argparse.Namespace, arguments: Sequence[str], app_dir: Path, data_dir: Path) -> int:
    from functions_host.app.reload import run_reloading  # noqa: PLC0415
    from functions_host.web.server import open_listener  # noqa: PLC0415

    port = options.port
    if port == 0:  # the same one for every run
        with open_listener(options.host, 0) as listener:
            port = listener.getsockname()[1]
    arguments = [argument for argument in arguments if argument != "--reload"]
    arguments += [] if port is None else ["--port", str(port)]
    return run_reloading(arguments, app_dir, data_dir)


def exit_now(status: int) -> None:
    """Exit without waiting for threads that run the app's functions: the next start runs those again.

    What the app registered with `atexit`, such as sending what it has measured, has a moment to run.
    """
    run_exit_functions: Any = vars(atexit)["_run_exitfuncs"]  # it has no public name
    leaving = threading.Thread(target=run_exit_functions, name="exit", daemon=True)
    leaving.start()
    leaving.join(_EXIT_SECONDS)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
