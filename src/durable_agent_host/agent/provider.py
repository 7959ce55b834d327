"""The port to a model provider: what only the provider knows of its clients, their updates and their errors.

`providers.registry.provider_for` finds the provider of an agent's client. `providers.neutral.NeutralProvider`
implements every hook for any client; other providers derive from it and override what they know better.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from agent_framework import ChatResponse, Content, Message

from durable_agent_host.errors import ProviderError
from durable_agent_host.model.conversation_file import ServedFile, ServiceFile
from durable_agent_host.model.provider_item import Forgotten
from durable_agent_host.model.repair_rules import RepairRules
from durable_agent_host.stream.fold import ItemReader


class ModelProvider(ItemReader, Protocol):
    """What the run of a turn asks of an agent's provider; `ItemReader` is what the fold asks of it."""

    @property
    def repair_rules(self) -> RepairRules:
        """What the provider's service requires of a stored conversation."""
        ...

    def adapt(self, client: Any, /) -> Any:
        """Copy a chat client so that it keeps the provider's own blocks and sends them back verbatim.

        Guarantee: pure; the client given is not changed, and shares its connections with the copy.
        """
        ...

    async def warm_up(self) -> None:
        """Load what the first call of a process needs; asks no service, and may do nothing."""
        ...

    def sdk_clients(self, client: Any, /, *, retries: bool = False) -> dict[str, Any]:
        """Give the SDK's clients with which a hosted chat client does its work, by the attributes that they replace.

        Args:
            client: the chat client.
            retries: whether the SDK makes failed requests again, as the app has set it; the host does it otherwise.
        """
        ...

    def sums_up(self, options: Mapping[str, Any], /) -> Callable[[Message], bool] | None:
        """Say which messages stand for all that came before them, because the service itself has compacted that.

        Args:
            options: of the agent.

        Returns:
            Tells it of a message; None when the service is not asked to compact.
        """
        ...

    def finished_calls(self, update: Any, /) -> Iterable[tuple[str, bool]]:
        """List the calls of hosted tools that an update ends: call id, and whether it failed."""
        ...

    def ended_early(self, updates: Iterable[Any], /) -> bool:
        """Tell whether the stream of one model call has ended without the provider's word that it is whole."""
        ...

    def whole_answer(self, event: Any, /) -> Any:
        """Give the whole answer, when an event of a stream has it.

        Guarantee: pure.

        Args:
            event: the data of one event, as the service sent it.

        Returns:
            The answer as the service gives it without a stream; None when the event is another.
        """
        ...

    def goes_on(self, response: ChatResponse[Any], /) -> Sequence[Message] | None:
        """Tell whether the model has paused in its answer, and how to let it go on.

        Guarantee: pure, also of a response that was read from a journal.

        Args:
            response: of one model call, whole.

        Returns:
            The messages to append to the request, so that the model goes on; None when the answer is all.
        """
        ...

    def check_message(self, message: Message, /) -> None:
        """Refuse a caller's message with something that the service never takes, before the model is asked.

        Raises:
            RequestError: says what, and what to send instead.
        """
        ...

    def replay(self, messages: Sequence[Message], /, *, session_id: str) -> list[Message]:
        """Prepare a stored conversation for the model: which blocks go back, and what must not.

        Args:
            messages: freshly decoded, the conversation from its start; their contents may be changed in place.
            session_id: unique to the conversation; ids that a history has lost are derived from it.
        """
        ...

    def as_history(self, messages: Sequence[Message], /) -> list[Message]:
        """Prepare messages of the current run in the same way, when they become its history.

        Guarantee: pure; doing it again changes nothing.
        """
        ...

    def carry(
        self, messages: Sequence[Message], remembered: Mapping[str, Any], lost: Iterable[Forgotten], /
    ) -> tuple[list[Message], dict[str, Any]]:
        """Mark what the service can no longer use, and say what to remember of that beside the transcript.

        Guarantee: pure; the messages given are not changed.

        Args:
            messages: the conversation.
            remembered: what this method returned before, with the session.
            lost: what the service has refused since.
        """
        ...

    def service_files(self, content: Content, /) -> Iterable[ServiceFile]:
        """List the files of the service to which a stored content refers."""
        ...

    async def read_service_file(self, client: Any, file: ServiceFile, /) -> ServedFile:
        """Download a file of the service.

        Args:
            client: the agent's chat client.
            file: as `service_files` gave it.

        Raises:
            NotFoundError: the service does not have it, or does not give it out.
            ProviderError: the service failed.
        """
        ...

    async def cancel(self, client: Any, continuation: Mapping[str, Any], /) -> None:
        """Tell the service that nobody wants an answer any more that it is making; a person has cancelled the turn.

        Args:
            client: the agent's chat client.
            continuation: the token of the last model call that had one.
        """
        ...

    def forgotten(self, error: BaseException, /) -> Forgotten | None:
        """Tell what the service has lost, when that is why it refused a request."""
        ...

    def explain(self, error: BaseException, /) -> ProviderError | None:
        """Say why a call of the model failed and whether to retry; None when something else failed."""
        ...


ProviderFor = Callable[[Any], ModelProvider]
"""Finds the provider of a chat client; of None, the one for agents whose clients the host does not see."""
