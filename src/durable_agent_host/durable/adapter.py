"""What the run of a turn needs to know of a model's provider."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from agent_framework import AgentResponseUpdate, Content, Message

from durable_agent_host.errors import ProviderError
from durable_agent_host.model.provider_item import Forgotten, ItemPart


class ProviderAdapter(Protocol):
    """What a module of `durable_agent_host.providers` gives to the run of a turn."""

    def adapt_client(self, client: Any, /) -> Any:
        """Give a chat client that sends the provider's items back; clients of others as they are."""
        ...

    def read_item(self, update: Any, /) -> ItemPart | None:
        """Tell to which item of the model's output an update belongs."""
        ...

    def complete_item(self, contents: list[Content], item: Mapping[str, Any] | None, /) -> list[Content]:
        """Complete the contents of one item by what the provider finished."""
        ...

    def finished_calls(self, update: AgentResponseUpdate, /) -> Iterable[tuple[str, bool]]:
        """Tell which calls of hosted tools are over by an update, and whether they failed."""
        ...

    def ended_early(self, updates: Iterable[Any], /) -> bool:
        """Tell whether the stream of one model call has ended without the provider's word that it is whole."""
        ...

    def forgotten_by_service(self, error: BaseException, /) -> Forgotten | None:
        """Tell what the service has lost, when that is why it refused a request."""
        ...

    def without_forgotten(
        self, messages: Sequence[Message], remembered: Mapping[str, Any], lost: Iterable[Forgotten], /
    ) -> tuple[list[Message], dict[str, Any]]:
        """Mark what the service can no longer use, and say what to remember of it."""
        ...

    def as_history(self, messages: Sequence[Message], /) -> list[Message]:
        """Give messages of before such that the framework sends them as they were."""
        ...

    def explain_error(self, error: BaseException, /) -> ProviderError | None:
        """Say in a sentence why a call of the model failed, or None when it was something else."""
        ...
