"""A host whose bounds of what models may send are small."""

import contextlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from tests.durable_agent_host.hostile_answers import AGENTS_ROUTES, beginning, for_ever
from tests.durable_agent_host.hostile_model import HostileModel, Send, hostile_model, pieces
from tests.kit import AgentHost, running_host

BOUNDS = {
    "ANSWER_BYTES": 300_000,
    "LINE_BYTES": 100_000,
    "TURN_BYTES": 500_000,
    "MODEL_CALLS": 5,
    "CALLS_AT_ONCE": 10,
    "ARGUMENT_BYTES": 20_000,
    "TOOL_RESULT_BYTES": 20_000,
    "STREAM_READERS": 2,
}
ANSWER_SECONDS = 120


@contextlib.contextmanager
def bounded_model() -> Iterator[HostileModel]:
    """Run an endpoint for the app ``bounded``: it also answers the routes of Azure AI Agents."""
    with hostile_model() as running:
        running.by_path |= AGENTS_ROUTES
        yield running


@contextlib.contextmanager
def bounded_host(folder: Path, model: HostileModel, effects: Path, **more: str) -> Iterator[AgentHost]:
    """Run the app ``bounded``.

    Args:
        folder: for its data.
        model: whom all of its agents ask.
        effects: the file to which their tool writes.
        more: settings.
    """
    settings = {f"DURABLE_AGENT_HOST_MAX_{name}": str(value) for name, value in BOUNDS.items()}
    settings |= {
        "DURABLE_AGENT_HOST_ANSWER_SECONDS": str(ANSWER_SECONDS),
        "MODEL_URL": model.url,
        "EFFECTS": str(effects),
    }
    with running_host(folder, None, app=Path(__file__).parent / "apps" / "bounded", **{**settings, **more}) as running:
        yield running


def endless(client: str, part: bytes) -> Send:
    """Write a stream that goes on with the same part for ever."""
    return pieces(chain([beginning(client)], for_ever(part)))
