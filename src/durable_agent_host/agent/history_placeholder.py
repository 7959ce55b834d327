"""Long histories pass the framework's loop of tool calls as one message.

For each run and each model call, the framework copies all messages and looks through them several times for people's
approvals, on the loop of all agents: 30 ms for 5,000 messages, in which no other turn goes on. It refers to its copies
in cycles, which the collector of garbage walks while it holds all threads. So the messages in which it would find
nothing are held back until the model's client is called, which gets all of them.
"""

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any, Final, cast

from agent_framework import ChatContext, FunctionMiddleware, Message

_MIN_MESSAGES: Final = 200
"""Fewer messages are no work."""
_TRANSPARENT_PACKAGES: Final = frozenset(
    {
        "durable_agent_host",
        "agent_framework",
        "agent_framework_anthropic",
        "agent_framework_foundry",
        "agent_framework_gemini",
        "agent_framework_openai",
    }
)
"""Packages whose clients neither look at the messages before our middleware does nor keep them."""


class HistoryPlaceholder(Message):
    """Stands for earlier messages; its copies hold the same list.

    Args:
        messages: in order.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        super().__init__("user", [""])  # the framework removes messages without contents
        self.hidden_messages = list(messages)


def hide_history(messages: Any, client: Any, middleware: Sequence[Any]) -> HistoryPlaceholder | None:
    """Hold back the earlier messages of a run if nothing of the app's could see that they are missing.

    Args:
        messages: of the run.
        client: runs the tools; it is about to be asked.
        middleware: of the request, that of the app.

    Returns:
        What stands for the first of the messages; None when there are few, or when middleware or a client of the app's
        own would see it.
    """
    message_list = cast("list[Message]", messages) if isinstance(messages, list) else []
    if len(message_list) <= _MIN_MESSAGES or not _is_hidden(client, middleware):
        return None
    placeholder = HistoryPlaceholder([*takewhile(_is_plain, message_list[:-1])])
    return placeholder if len(placeholder.hidden_messages) > _MIN_MESSAGES else None


class ModelCallMessages:
    """The messages of one model call: as the framework gave them, and as they are sent.

    The framework refers to both after the call, in cycles; so they are let go of if the app has not seen them.

    Args:
        context: of the call.

    Attributes:
        all_messages: all messages, with those that were held back.
    """

    def __init__(self, context: ChatContext) -> None:
        self._context = context
        self._framework_messages = context.messages
        self._sent: list[list[Message]] = []
        first = self._framework_messages[0] if self._framework_messages else None
        self._is_hidden = isinstance(first, HistoryPlaceholder)
        self.all_messages = (
            [*first.hidden_messages, *self._framework_messages[1:]]
            if isinstance(first, HistoryPlaceholder)
            else [*self._framework_messages]
        )

    def choose(self, messages: Iterable[Message]) -> None:
        """Set the messages to send."""
        self._sent.append([*messages])
        self._context.messages = self._sent[-1]

    def hide_messages(self) -> None:
        """Hide them from the framework, which would look through them, until they are sent."""
        if self._is_hidden:
            self._context.messages = self._framework_messages

    def send(self) -> None:
        """Show them to the client, which is about to be called."""
        self._context.messages = self._sent[-1]

    def release(self) -> None:
        """Let go of them, when the call has ended."""
        self.hide_messages()
        if self._is_hidden:
            for sent in self._sent:
                sent.clear()


def _is_plain(message: Message) -> bool:
    """Return whether a message has nothing to do with approvals, which the framework looks for in all of them."""
    return not any("approval" in content.type for content in message.contents)


def sees_streams(middleware: Sequence[Any]) -> bool:
    """Return whether some middleware may see what a model call sends or streams. Guarantee: pure."""
    return not all(isinstance(layer, FunctionMiddleware) for layer in middleware)


def _is_hidden(client: Any, middleware: Sequence[Any]) -> bool:
    """Return whether only the framework and this package see the messages until our own chat middleware does."""
    if sees_streams([*client.chat_middleware, *middleware]):
        return False
    names = ("get_response", "_inner_get_response")
    kinds = [kind for kind in type(client).__mro__ if any(name in vars(kind) for name in names)]
    return not any(name in vars(client) for name in names) and all(
        kind.__module__.split(".")[0] in _TRANSPARENT_PACKAGES for kind in kinds
    )
