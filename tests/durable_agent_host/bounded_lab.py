"""A host whose limits on what models may send are small."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.durable_agent_host.hostile_model import HostileModel, hostile_model
from tests.durable_agent_host.hostile_streams import AGENTS_ROUTES
from tests.kit import AgentHost, running_host

BOUNDS = {"MODEL_CALLS": 5, "CALLS_AT_ONCE": 10, "TOOL_RESULT_BYTES": 20_000}


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
    settings |= {"MODEL_URL": model.url, "EFFECTS": str(effects)}
    with running_host(folder, None, app=Path(__file__).parent / "apps" / "bounded", **{**settings, **more}) as running:
        yield running
