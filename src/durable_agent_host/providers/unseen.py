"""The provider of agents whose chat clients the host does not see: workflows, and agents of the app's own classes.

Each provider is asked in turn; the first that recognizes an update or an error answers. Clients inside such agents are
not adapted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from agent_framework import Content, Message

from durable_agent_host.agent.provider import ModelProvider
from durable_agent_host.errors import ProviderError
from durable_agent_host.model.provider_item import Forgotten, ItemPart
from durable_agent_host.providers.neutral import NeutralProvider


class UnseenProvider(NeutralProvider):
    """Delegates to others.

    Args:
        load: returns the providers to ask, in order; called when the first of them is needed.
    """

    def __init__(self, load: Callable[[], Sequence[ModelProvider]]) -> None:
        self._load = load

    @cached_property
    def _asked(self) -> Sequence[ModelProvider]:
        return self._load()

    def read_item(self, update: Any, /) -> ItemPart | None:
        """Ask until one recognizes the update."""
        for one in self._asked:
            if (part := one.read_item(update)) is not None:
                return part
        return None

    def complete_item(self, contents: list[Content], item: Mapping[str, Any] | None, /) -> list[Content]:
        """Let each complete what it recognizes."""
        for one in self._asked:
            contents = one.complete_item(contents, item)
        return contents

    def finished_calls(self, update: Any, /) -> Iterable[tuple[str, bool]]:
        """List what any of them finds."""
        return [call for one in self._asked for call in one.finished_calls(update)]

    def replay(self, messages: Sequence[Message], /, *, session_id: str) -> list[Message]:
        """Let each prepare the conversation."""
        for one in self._asked:
            messages = one.replay(messages, session_id=session_id)
        return list(messages)

    def as_history(self, messages: Sequence[Message], /) -> list[Message]:
        """Let each prepare the messages."""
        for one in self._asked:
            messages = one.as_history(messages)
        return list(messages)

    def carry(
        self, messages: Sequence[Message], remembered: Mapping[str, Any], lost: Iterable[Forgotten], /
    ) -> tuple[list[Message], dict[str, Any]]:
        """Let each mark what it knows to be lost."""
        known, refused = dict(remembered), list(lost)
        for one in self._asked:
            messages, known = one.carry(messages, known, refused)
        return list(messages), known

    def forgotten(self, error: BaseException, /) -> Forgotten | None:
        """Ask until one recognizes the error."""
        return next((lost for one in self._asked if (lost := one.forgotten(error)) is not None), None)

    def explain(self, error: BaseException, /) -> ProviderError | None:
        """Ask until one recognizes the error."""
        return next((known for one in self._asked if (known := one.explain(error)) is not None), None)
