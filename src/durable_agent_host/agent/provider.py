"""The port to a model provider: its knowledge of its clients, their updates and their errors.

`providers.registry.provider_for` returns the provider of an agent's client. The hooks here that have a body do nothing:
most services have nothing of the kind. `providers.generic_provider.GenericProvider` implements the others for any
client; providers derive from it and override hooks.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from agent_framework import ChatResponse, Content, Message

from durable_agent_host.errors import ProviderError
from durable_agent_host.model.conversation_file import ServedFile, ServiceFile
from durable_agent_host.model.provider_item import LostState
from durable_agent_host.stream.live_events import EventReader


@dataclass(frozen=True, slots=True)
class ClientCall:
    """A call of a service's own tool that the client runs.

    Attributes:
        call_id: chosen by the service.
        name: of the tool.
        arguments: what the client is asked to do.
        build_result: the contents of the client's reply, and its error or None → those for the model, in which a text
            is the user's.
    """

    call_id: str
    name: str
    arguments: Mapping[str, Any]
    build_result: Callable[[Sequence[Content], str | None], Sequence[Content]]


class ModelProvider(EventReader, Protocol):
    """What a turn's run needs from an agent's provider; the fold needs `ItemReader`."""

    keeps_conversation: ClassVar[bool] = False
    """Whether its service is sent only what is new, always."""
    omits_refusals: ClassVar[bool] = False
    """Whether a turn that its service has refused is not sent again: the model would go on refusing."""

    def adapt(self, client: Any, /) -> Any:
        """Copy a chat client so that it keeps the provider's own blocks and sends them back verbatim.

        The client given is not changed, and shares its connections with the copy.
        """
        ...

    async def warm_up(self) -> None:
        """Load what a process's first call needs; calls no service."""

    def sdk_clients(self, client: Any, /) -> dict[str, Any]:
        """Return the SDK clients that a hosted chat client uses, by the attributes that they replace; none retries."""
        ...

    def is_compaction_item(self, options: Mapping[str, Any], /) -> Callable[[Message], bool] | None:
        """Return how to recognize messages in which the service itself has compacted everything before.

        Args:
            options: of the agent.

        Returns:
            A function that recognizes such a message; None when the service is not asked to compact.
        """
        ...

    def is_truncated(self, updates: Iterable[Any], /) -> bool:
        """Return whether the stream of one model call ended without the provider marking it complete."""
        ...

    def continuation_messages(self, response: ChatResponse[Any], /) -> Sequence[Message] | None:
        """Return whether the model has paused in its answer, and how to let it continue.

        Called also for a response read from a journal.

        Args:
            response: of one model call, complete.

        Returns:
            The messages to append to the request, so that the model continues; None when the answer is complete.
        """
        del response

    def client_calls(self, messages: Sequence[Message], /) -> Sequence[ClientCall]:
        """List the calls of the service's own tools that the client runs, and that have no result.

        Args:
            messages: of a response, complete, and the results of its calls.
        """
        del messages
        return ()

    def client_tools(self, tool: Any, /) -> Sequence[Any]:
        """Return what the framework gets for a tool that it does not run.

        Returns:
            The tool, if its service runs it. For one that the client runs, a tool for each function that the model may
            call, without a function itself; the adapted client sends the service's tool instead.
        """
        return (tool,)

    def check_message(self, message: Message, /) -> None:
        """Refuse a caller's message that the service can never accept, before the model is called.

        Raises:
            RequestError: says what is wrong, and what to send instead.
        """
        ...

    def replay(self, messages: Sequence[Message], /, *, session_id: str) -> list[Message]:
        """Prepare a stored conversation for the model: which blocks are sent back, and which must not be.

        Args:
            messages: the conversation from its start, freshly decoded; their contents may be changed in place.
            session_id: unique to the conversation; lost ids are derived from it.
        """
        ...

    def as_history(self, messages: Sequence[Message], /) -> list[Message]:
        """Prepare messages of the current run in the same way, when they become its history.

        Idempotent.
        """
        ...

    def carry(
        self, messages: Sequence[Message], lost_state: Mapping[str, Any], lost: Iterable[LostState], /
    ) -> tuple[list[Message], dict[str, Any]]:
        """Mark what the service cannot use or refuses, and return what to remember of that beside the transcript.

        The messages given are not changed.

        Args:
            messages: the conversation.
            lost_state: this method's previous result, kept with the session.
            lost: what the service has refused since.
        """
        ...

    async def read_service_file(self, client: Any, file: ServiceFile, /) -> ServedFile:
        """Download a file of the service.

        Args:
            client: the agent's chat client.
            file: from `service_files`.

        Raises:
            NotFoundError: the service does not have it, or does not release it.
            ProviderError: the service failed.
        """
        ...

    async def cancel(self, client: Any, continuation: Mapping[str, Any], /) -> None:
        """Tell the service that the answer it is producing is no longer wanted; a person has cancelled the turn.

        Args:
            client: the agent's chat client.
            continuation: the token of the last model call that had one.
        """
        del client, continuation

    def lost_state(self, error: BaseException, /) -> LostState | None:
        """Return what the service has lost or does not take, when that is why it refused a request."""
        del error

    def explain(self, error: BaseException, /) -> ProviderError | None:
        """Return why a model call failed and whether to retry; None when something else failed."""
        ...


ProviderFor = Callable[[Any], ModelProvider]
"""Returns the provider of a chat client; for None, the one for agents whose clients the host does not see."""
