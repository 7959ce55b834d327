"""Which provider looks after an agent's chat client."""

from collections.abc import Iterator

import pytest
from agent_framework import BaseChatClient, Content, Message
from agent_framework_gemini import GeminiChatClient
from agent_framework_openai import OpenAIChatClient, OpenAIChatCompletionClient

from durable_agent_host.errors import RegistrationError
from durable_agent_host.model.provider_item import STAMP
from durable_agent_host.providers import registry
from durable_agent_host.providers.adapted_client import FoldedStreamMixin
from durable_agent_host.providers.chat_completions.provider import CHAT
from durable_agent_host.providers.gemini.provider import GEMINI
from durable_agent_host.providers.generic_provider import GenericProvider
from durable_agent_host.providers.openai.provider import OPENAI, RESPONSES
from durable_agent_host.providers.registry import provider_for, register_provider


class CustomClient(BaseChatClient):
    """A client that no provider is known for."""

    def _inner_get_response(self, **kwargs):
        raise NotImplementedError


class Derived(CustomClient):
    """A client of the same kind."""


class Reader(GenericProvider):
    """A provider of the app."""


@pytest.fixture
def reader() -> Iterator[Reader]:
    """A provider that is registered for one test."""
    instance = Reader()
    register_provider(CustomClient, instance)
    yield instance
    del registry._REGISTERED[CustomClient]


@pytest.mark.parametrize(
    ("client", "provider"),
    [
        (OpenAIChatClient(model="m", api_key="k"), RESPONSES),
        (OpenAIChatClient(model="m", api_key="k", azure_endpoint="https://x.openai.azure.com"), RESPONSES),
        (RESPONSES.adapt(OpenAIChatClient(model="m", api_key="k")), RESPONSES),
        (OpenAIChatCompletionClient(model="m", api_key="k"), CHAT),
        (GeminiChatClient(model="m", api_key="practice"), GEMINI),
    ],
)
def test_a_client_has_the_provider_of_its_class(client, provider):
    """Azure's clients are OpenAI's, and a hosted copy keeps its provider."""
    assert provider_for(client) is provider


def test_the_nearest_class_decides(reader):
    """A registered provider looks after derived classes, too, until one of them has its own."""
    assert provider_for(Derived()) is provider_for(CustomClient()) is reader

    class Subclass(OpenAIChatClient):
        """A client of the app's that wants another provider than its base."""

    register_provider(Subclass, reader)
    try:
        assert provider_for(Subclass(model="m", api_key="k")) is reader
    finally:
        del registry._REGISTERED[Subclass]


def test_a_client_written_for_the_host_needs_its_provider():
    """Its distribution is not installed, or names no provider: it would lose what the provider stores."""

    class Outside(FoldedStreamMixin, CustomClient):
        """A client of a package whose metadata is missing."""

    with pytest.raises(RegistrationError, match="no entry point names the provider"):
        provider_for(Outside())


def test_an_agent_without_a_visible_client_gets_openai_s_provider():
    """Workflows and the app's own agent classes."""
    assert provider_for(None) is OPENAI


def test_a_client_that_nobody_knows_gets_the_neutral_provider():
    """It is used as it is, and its contents are what is kept."""
    client = CustomClient()
    neutral = provider_for(client)
    assert isinstance(neutral, GenericProvider)
    assert neutral not in (OPENAI, RESPONSES, GEMINI)
    assert neutral.adapt(client) is client
    contents = [Content.from_text("hi"), Content.from_text("", additional_properties={STAMP: {"provider": "other"}})]
    (message,) = neutral.replay([Message("assistant", contents)], session_id="one")
    assert [content.text for content in message.contents] == ["hi"]
