"""Chat Completions of OpenAI, Azure, OpenRouter, DeepSeek, vLLM, Ollama and others (`agent_framework_openai` 1.17).

`provider` implements the port; `client` adapts an agent's client. `message_accumulator` merges the deltas of a
stream into the message that the service would have sent without streaming; `content_mapping` converts a message to
neutral contents and back; `message_metadata` attaches to contents the fields that they lack, and rebuilds the message;
`request_messages` writes a conversation for the API, without the fields that the service rejects.
"""

from typing import Final

CLIENT: Final = ("agent_framework_openai", "RawOpenAIChatCompletionClient")
"""Package and name of the class from which clients of Chat Completions derive."""
