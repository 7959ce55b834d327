"""OpenAI and Azure OpenAI Responses, through `agent_framework_openai` 1.17.

`client_from_environment` makes the client that the environment selects. `provider` implements the port; `client` adapts
an agent's client; `item_types` has a row for each type of output item, used by `item_mapping` and `request_items`;
`errors` explains rejections.
"""

from durable_agent_host.providers.openai.client_from_environment import chat_client_from_environment

__all__ = ["chat_client_from_environment"]
