"""Errors of reading what a model's service has sent, as a sentence."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final

from durable_agent_host.agent.bounds import received
from durable_agent_host.agent.model_errors import advice_of, causes_of
from durable_agent_host.errors import DurableAgentHostError, ProviderError

_MOST_CHARACTERS: Final = 300


@contextmanager
def reading(client: Any, explain: Callable[[BaseException], ProviderError | None]) -> Generator[None]:
    """Turn an error of reading an answer into a sentence: one that nobody explains, after some of the answer has come.

    Args:
        client: the chat client.
        explain: returns what the provider knows of an error.

    Raises:
        ProviderError: the answer cannot be read; with the client's name and the error's text.
        Exception: any other, unchanged.
    """
    before = received().bytes
    try:
        yield
    except Exception as error:
        causes = list(causes_of(error))
        is_ours = any(isinstance(one, DurableAgentHostError) for one in causes)
        if is_ours or received().bytes == before or explain(error) is not None or advice_of(error) is not None:
            raise
        why = f"{type(client).__name__}: {type(causes[-1]).__name__}: {causes[-1]}"[:_MOST_CHARACTERS]
        raise ProviderError(
            f"the model's service sent an answer that cannot be read: {why}", retryable=False
        ) from error
