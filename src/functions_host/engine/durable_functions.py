"""The port through which the engine calls the app's functions."""

from dataclasses import dataclass
from typing import Protocol

from functions_host.engine.decision import Catalog

TIMEOUT_KIND = "FunctionTimeoutException"
"""The ``kind`` of a failure by ``functionTimeout``."""


@dataclass(frozen=True, slots=True)
class Returned:
    """The function returned; ``value`` is the text of its answer."""

    value: str


@dataclass(frozen=True, slots=True)
class Raised:
    """The function raised; ``kind`` is the name of the exception's class."""

    kind: str
    message: str
    trace: str = ""

    @property
    def is_timeout(self) -> bool:
        """Return whether the function exceeded the host's timeout."""
        return self.kind == TIMEOUT_KIND

    @property
    def text(self) -> str:
        """The failure as the Python worker reports it, ``TypeName: message``; a timeout as the host reports it."""
        if self.is_timeout:
            return self.message
        return f"{self.kind}: {self.message}"


class DurableFunctions(Protocol):
    """The app's durable functions, called by name; names ignore case."""

    @property
    def catalog(self) -> Catalog:
        """The functions that exist."""
        ...

    async def run_orchestrator(self, name: str, context_json: str) -> Returned | Raised:
        """Call an orchestrator with its whole history, as its ``handle`` takes it."""
        ...

    async def run_entity(self, name: str, batch_json: str) -> Returned | Raised:
        """Call an entity's ``handle``."""
        ...

    async def run_activity(self, name: str, input_json: str) -> Returned | Raised:
        """Call an activity."""
        ...
