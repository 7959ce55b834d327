"""Command line of the practice model: start the server, print its URL, stop cleanly on SIGTERM."""

import argparse
import contextlib
import signal
import socket
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import uvicorn

from practice_model.play.plans import PlanError, read_plans
from practice_model.server import PracticeModel


def main() -> int:
    """Run the practice model until it is stopped; return the exit status."""
    arguments = argument_parser("python -m practice_model").parse_args()
    return serve(arguments, PracticeModel)


def serve(arguments: argparse.Namespace, build_model: Callable[[], PracticeModel]) -> int:
    """Run a model until it is stopped; return the exit status.

    Args:
        arguments: of `argument_parser`.
        build_model: makes the model.
    """
    try:
        plans = read_plans(arguments.plan) if arguments.plan else []
        listener = _listen(arguments.host, arguments.port)
    except (OSError, PlanError) as error:
        print(error, file=sys.stderr)
        return 1
    model = build_model()
    model.plans.extend(plans)
    host, port = listener.getsockname()[:2]
    _Server(model, f"http://{host}:{port}/v1").run(sockets=[listener])
    return 0


class _Server(uvicorn.Server):
    """Uvicorn that prints its URL once it listens, and exits with status 0 on SIGTERM."""

    def __init__(self, model: PracticeModel, url: str) -> None:
        super().__init__(uvicorn.Config(model.app, log_level="critical", timeout_graceful_shutdown=1))
        self._url = url

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Stop on a signal, and exit with status 0: uvicorn itself would raise the signal again."""
        for signal_number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signal_number, self.handle_exit)
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print(f"Practice model ready: {self._url}", flush=True)


def _listen(host: str, port: int) -> socket.socket:
    """Return a bound socket."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only for IPPROTO_TCP; with it, short responses are delayed by 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(
            f"Port {port} on {host} cannot be used ({error.strerror}): use another --port, or 0 for a free one."
        ) from error
    return listener


def argument_parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(program, description="Local models for practice: OpenAI's APIs, without a key.")
    parser.add_argument("--port", type=int, default=8901, help="port to listen on, 0 for a free one (default 8901)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--plan", type=Path, help="YAML file of plans: messages and their answers")
    return parser


if __name__ == "__main__":
    sys.exit(main())
