"""OpenAI and Azure OpenAI Responses, through `agent_framework_openai` 1.17.

`settings` makes the client that the environment asks for. `provider` implements the port; `client` adapts the client
that an agent brings; `item_types` has a row for each type of output item, by which `items` and `replay` work; `errors`
says what a refusal means.
"""

from typing import Final

from durable_agent_host.providers.openai.environment import chat_client_from_environment

__all__ = ["RESPONSES_CLIENT", "chat_client_from_environment"]

RESPONSES_CLIENT: Final = ("agent_framework_openai", "RawOpenAIChatClient")
"""Package and name of the class from which clients of the Responses API derive, Azure OpenAI's and Foundry's, too."""
