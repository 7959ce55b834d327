"""The command line: ``python -m functions_host start``."""

import argparse
import importlib.util
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

_REQUIRED_PYTHON = (3, 13)
_REQUIRED_PACKAGES = {
    "azure_functions_runtime": "azure-functions-runtime",
    "azure.functions": "azure-functions",
    "uvicorn": "uvicorn",
    "starlette": "starlette",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="functions_host", description="A local host for Python function apps.")
    commands = parser.add_subparsers(dest="command", required=True)
    add_start_arguments(commands.add_parser("start", help="run the app of a folder"))
    return run_start(parser.parse_args(arguments))


def add_start_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``start``, here and in other command lines that offer it."""
    parser.add_argument("--app", type=Path, default=Path(), metavar="DIR", help="the app's folder (default: .)")
    parser.add_argument(
        "--port", type=int, help="0 takes a free one (default: LocalHttpPort in local.settings.json, or 7071)"
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="where state is kept (default: APP/.functions-host)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("-v", "--verbose", action="store_true", help="log requests, one line each")
    parser.add_argument("--reload", action="store_true", help="restart when a .py or .json file of the app changes")
    parser.add_argument("--enable-auth", action="store_true", help="ask for keys, as Azure does; they are printed")


def run_start(options: argparse.Namespace) -> int:
    """Run the host until it is stopped; a failed start is one sentence on stderr and status 1."""
    if sys.version_info < _REQUIRED_PYTHON:
        version = ".".join(str(part) for part in sys.version_info[:3])
        print(f"Error: Python 3.13 or later is needed, this is {version}; make the environment anew.", file=sys.stderr)
        return 1
    missing = [name for module, name in _REQUIRED_PACKAGES.items() if not _is_installed(module)]
    if missing:
        names = ", ".join(missing)
        print(f"Error: Not installed: {names}; run: pip install 'durable-agent-host[host]'", file=sys.stderr)
        return 1
    level = logging.INFO if options.verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    for library in ("azure.functions", "uvicorn", "watchfiles"):
        logging.getLogger(library).setLevel(logging.WARNING)
    from functions_host.errors import StartupError  # noqa: PLC0415 - after the checks
    from functions_host.host import StartOptions, run_host  # noqa: PLC0415

    app_dir = options.app.resolve()
    data_dir = (options.data or app_dir / ".functions-host").resolve()
    try:
        if options.reload and app_dir.is_dir():
            return _run_reloading(options, app_dir, data_dir)
        run_host(StartOptions(app_dir, data_dir, options.host, options.port, options.verbose, options.enable_auth))
    except KeyboardInterrupt:  # while the app was imported
        return 130
    except StartupError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        return 1
    return 0


def _run_reloading(options: argparse.Namespace, app_dir: Path, data_dir: Path) -> int:
    from functions_host.http_server import open_listener  # noqa: PLC0415 - after the checks
    from functions_host.reload import run_reloading  # noqa: PLC0415

    port = options.port
    if port == 0:  # the same one for every run
        with open_listener(options.host, 0) as listener:
            port = listener.getsockname()[1]
    arguments = ["--app", str(app_dir), "--data", str(data_dir), "--host", options.host]
    arguments += [] if port is None else ["--port", str(port)]
    arguments += ["--verbose"] if options.verbose else []
    arguments += ["--enable-auth"] if options.enable_auth else []
    return run_reloading(arguments, app_dir, data_dir)


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def exit_now(status: int) -> None:
    """End the process without waiting for threads that run the app's functions; they are done again."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
