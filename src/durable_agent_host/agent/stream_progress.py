"""How far the stream of one run is: where its updates come from, and what is known of its calls."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, cast

from agent_framework import ChatResponse

from durable_agent_host.agent.invalid_arguments import extract_invalid_calls


@dataclass(frozen=True)
class LiveStream:
    """The stream comes from a model call that has no response yet.

    Attributes:
        position: of the call.
    """

    position: int


@dataclass(frozen=True)
class ReplayedStream:
    """The stream comes from the journal."""


REPLAYED: Final = ReplayedStream()

Source = LiveStream | ReplayedStream | None
"""The source of the current stream; None for what the framework and the app add between model calls."""


@dataclass(frozen=True)
class BrokenStream:
    """A stream that broke midway.

    Attributes:
        position: of the model call.
        wait_seconds: delay before the call is retried.
        reason: a sentence.
    """

    position: int
    wait_seconds: float
    reason: str


@dataclass
class StreamProgress:
    """Progress of a run's stream.

    Attributes:
        source: of the current stream.
        unreadable: the results for calls whose arguments cannot be read, by model call and call id.
        broken: the stream that has broken; another run may resume from there.
        available_tools: names of the tools in the model's requests; the model may call others.
    """

    source: Source = None
    unreadable: dict[tuple[int, str], str] = field(default_factory=dict[tuple[int, str], str])
    broken: BrokenStream | None = None
    available_tools: set[str] = field(default_factory=set[str])

    def begin_call(self, position: int) -> None:
        """Record that a model call streams."""
        self.source = LiveStream(position)

    def finish_call(self, position: int, response: ChatResponse[Any]) -> None:
        """Record that a model call has its response."""
        self.record_invalid_calls(response, position)
        self.source = None

    @contextmanager
    def replaying(self) -> Generator[None]:
        """Mark the context's stream as coming from the journal."""
        self.source = REPLAYED
        try:
            yield
        finally:
            self.source = None

    def record_invalid_calls(self, response: ChatResponse[Any], position: int) -> None:
        """Record the calls of a model's response whose arguments cannot be read."""
        for call_id, result_text in extract_invalid_calls(response):
            self.unreadable[position, call_id] = result_text

    def record_available_tools(self, options: Mapping[str, Any] | None) -> None:
        """Record the tools in the options of a model call."""
        tools: Any = (options or {}).get("tools") or ()
        for tool in cast("list[Any]", tools) if isinstance(tools, list | tuple) else [tools]:
            name: Any = (
                cast("dict[str, Any]", tool).get("name") if isinstance(tool, dict) else getattr(tool, "name", None)
            )
            self.available_tools.add(str(name))
