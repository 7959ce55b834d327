"""The practice model's Chat Completions in this process, and turns that are run live or from JSON state against it."""

from dataclasses import dataclass
from typing import Any

import httpx2
import openai
from agent_framework_openai import OpenAIChatCompletionClient

from durable_agent_host.providers.chat_completions.provider import CHAT
from tests.durable_agent_host.wire_lab import Lab


@dataclass
class ChatLab(Lab):
    """A practice model with fixed ids, and an agent that asks it for chat completions."""

    provider = CHAT
    host: str = "model"
    service_name: str = "unknown"

    def client(self, http: httpx2.AsyncClient) -> Any:
        """Make the client of an agent."""
        sdk = openai.AsyncOpenAI(api_key="k", base_url=f"http://{self.host}/v1", http_client=http, max_retries=0)
        client = OpenAIChatCompletionClient(model=self.model, async_client=sdk)
        client.additional_properties["service"] = self.service_name
        return client

    def plan_message(self, *, times: int = 1, **fields: Any) -> None:
        """Script an answer with the fields of a message."""
        self.plan({"item": {"type": "chat.completion.message", **fields}}, times=times)

    def streams(self, *deltas: dict[str, Any], finish: str = "stop", **fields: Any) -> None:
        """Script an answer by its deltas, each an event of its own."""
        choices = [*({"delta": delta} for delta in deltas), {"delta": {}, "finish_reason": finish}]
        chunks = [{"choices": [{"index": 0, "finish_reason": None, **choice}]} for choice in choices]
        self.plan({"items": [{"item": {"type": "chat.completion.chunk", **chunk, **fields}} for chunk in chunks]})

    @property
    def sent_messages(self) -> list[list[dict[str, Any]]]:
        """The messages of every request that the model got, without the names of their authors."""
        return [
            [{name: value for name, value in message.items() if name != "name"} for message in body["messages"]]
            for body in self.bodies
        ]
