"""The provider of clients that no other is registered for: the framework's contents carry all that is kept."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from agent_framework import ChatResponse, Content, Message

from durable_agent_host.errors import NotFoundError, ProviderError
from durable_agent_host.model.conversation_file import ServedFile, ServiceFile
from durable_agent_host.model.provider_item import STAMP, Forgotten, ItemPart, is_carrier
from durable_agent_host.model.repair_rules import RepairRules
from durable_agent_host.providers import connections, endings
from durable_agent_host.providers.errors import explain_client_error
from durable_agent_host.providers.foreign import Target, retold

_PROVIDERS: Final = "durable_agent_host.providers."


class NeutralProvider:
    """Implements `agent.provider.ModelProvider` for any client; other providers derive from it."""

    @property
    def repair_rules(self) -> RepairRules:
        """What every service requires."""
        return RepairRules()

    @property
    def target(self) -> Target:
        """What the client can be sent of a conversation that another provider began.

        A provider of this package has the name of its folder in its stamps. One of an app that stamps contents says
        its name here.
        """
        folder, _, _ = type(self).__module__.removeprefix(_PROVIDERS).rpartition(".")
        return Target(folder if type(self).__module__.startswith(_PROVIDERS) else "")

    def adapt(self, client: Any, /) -> Any:
        """Return the client as it is: it has no blocks of its own."""
        return client

    async def warm_up(self) -> None:
        """Do nothing: which SDK the client uses is not known."""

    def sdk_clients(self, client: Any, /, *, retries: bool = False) -> dict[str, Any]:
        """Guard the SDK's clients that are known by their shape; see `connections.sdk_clients`."""
        return connections.sdk_clients(client, retries=retries)

    def whole_answer(self, event: Any, /) -> Any:
        """Return None: no event is known to have the whole answer."""
        del event

    def sums_up(self, options: Mapping[str, Any], /) -> Callable[[Message], bool] | None:
        """Return None: no service is known to compact."""
        del options

    def read_item(self, update: Any, /) -> ItemPart | None:
        """Return None: no update says to which item it belongs."""
        del update

    def complete_item(self, contents: list[Content], item: Mapping[str, Any] | None, /) -> list[Content]:
        """Return the contents as they are."""
        del item
        return contents

    def finished_calls(self, update: Any, /) -> Iterable[tuple[str, bool]]:
        """Return nothing: what the framework's contents say is known already."""
        del update
        return ()

    def ended_early(self, updates: Iterable[Any], /) -> bool:
        """Look for the last word of the providers that are known by the shape of their events."""
        return endings.ended_early(updates)

    def goes_on(self, response: ChatResponse[Any], /) -> Sequence[Message] | None:
        """Return None: no service is known to pause."""
        del response

    def check_message(self, message: Message, /) -> None:
        """Refuse nothing: what the service takes is its own to say."""
        del message

    def replay(self, messages: Sequence[Message], /, *, session_id: str) -> list[Message]:
        """Tell in words what only another provider's client can send."""
        del session_id
        return self.as_history(retold(messages, self.target))

    def as_history(self, messages: Sequence[Message], /) -> list[Message]:
        """Leave out carriers of items, and hosted approvals that were answered."""
        return without_carriers(without_answered_approvals(messages))

    def carry(
        self, messages: Sequence[Message], remembered: Mapping[str, Any], lost: Iterable[Forgotten], /
    ) -> tuple[list[Message], dict[str, Any]]:
        """Return both as they are: nothing of the conversation lives with the service."""
        del lost
        return list(messages), dict(remembered)

    def service_files(self, content: Content, /) -> Iterable[ServiceFile]:
        """List hosted files, which all services have."""
        if content.type == "hosted_file" and content.file_id:
            yield ServiceFile(content.file_id, content.name, content.media_type)

    async def read_service_file(self, client: Any, file: ServiceFile, /) -> ServedFile:
        """Download nothing: how is the service's own matter."""
        del client
        raise NotFoundError(f"the file {file.file_id!r} is with the model's service, and cannot be read from there")

    async def cancel(self, client: Any, continuation: Mapping[str, Any], /) -> None:
        """Do nothing: how to tell the service is its own matter."""
        del client, continuation

    def forgotten(self, error: BaseException, /) -> Forgotten | None:
        """Return None: nothing is known of what the service keeps."""
        del error

    def explain(self, error: BaseException, /) -> ProviderError | None:
        """Say what the errors of all chat clients have in common."""
        return explain_client_error(error)


def without_carriers(messages: Iterable[Message]) -> list[Message]:
    """Leave out the contents that only carry an item of one provider, for the clients of others.

    Guarantee: pure; the messages given are not changed.

    Args:
        messages: a rehydrated conversation.

    Returns:
        The messages that still say something, copies where a content was left out.
    """
    return without_contents(messages, is_carrier)


def without_answered_approvals(messages: Sequence[Message]) -> list[Message]:
    """Leave out hosted approvals that were answered: the framework would take them as open, and answer them again.

    Guarantee: pure; the messages given are not changed.

    Args:
        messages: a rehydrated conversation.
    """
    contents = [content for message in messages for content in message.contents]
    answered = {content.id for content in contents if content.type == "function_approval_response"}

    def is_answered(content: Content) -> bool:
        call = content.function_call
        if call is None or not call.hosted or content.id not in answered:
            return False
        return content.type == "function_approval_response" or STAMP in content.additional_properties

    return without_contents(messages, is_answered) if answered else list(messages)


def without_contents(messages: Iterable[Message], is_left_out: Callable[[Content], bool]) -> list[Message]:
    """Leave out contents, and messages that have no others.

    Guarantee: pure; the messages given are not changed.

    Args:
        messages: a rehydrated conversation.
        is_left_out: tells it of a content.
    """
    kept: list[Message] = []
    for message in messages:
        contents = [content for content in message.contents if not is_left_out(content)]
        if len(contents) < len(message.contents):
            message = copy.copy(message)  # noqa: PLW2901 - the copy takes its place
            message.contents = contents
        if contents:
            kept.append(message)
    return kept
