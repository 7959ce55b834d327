"""A function of the app, as indexed by the worker library."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from functions_host.app.bindings import Bindings
from functions_host.app.worker_messages import RpcRetryOptions

DURABLE_TRIGGERS = {
    "orchestrationTrigger": "orchestration",
    "activityTrigger": "activity",
    "entityTrigger": "entityName",
}
"""Durable trigger → the binding's key with the durable name."""
_SERVED_TRIGGERS = {"httpTrigger", "timerTrigger", "mcpToolTrigger", *DURABLE_TRIGGERS}


@dataclass(frozen=True, slots=True)
class ClientBinding:
    """A parameter for a durable client."""

    parameter: str
    task_hub: str | None
    connection: str | None


@dataclass(frozen=True, slots=True)
class HttpTrigger:
    """The HTTP route of a function; empty ``methods`` means all."""

    route: str
    methods: frozenset[str]
    auth_level: str


@dataclass(frozen=True, slots=True)
class AppFunction:
    """One indexed function.

    ``durable_name`` is set for orchestrators, activities and entities; ``binding`` is the declared trigger and
    ``bindings`` are the others; ``cannot_be_awaited`` marks orchestrators and entities written with ``async``, which
    the SDK does not await.
    """

    name: str
    function_id: str
    trigger: str
    parameter: str
    is_async: bool
    http: HttpTrigger | None
    durable_name: str | None
    clients: tuple[ClientBinding, ...]
    has_return: bool
    binding: Mapping[str, Any]
    bindings: Bindings
    retry: RpcRetryOptions | None = None
    cannot_be_awaited: bool = False

    @property
    def is_served(self) -> bool:
        """Return whether this host runs functions of this kind."""
        return self.trigger in _SERVED_TRIGGERS
