"""Turns of an agent with a Gemini client, each run as by a new process, against a practice model over HTTP."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import httpx2
from agent_framework_gemini import GeminiChatClient
from google import genai

from durable_agent_host.providers.gemini.provider import GEMINI
from tests.durable_agent_host.wire_lab import Lab


@dataclass
class GeminiLab(Lab):
    """A practice model with fixed ids, and an agent that asks it by Gemini's API."""

    provider = GEMINI
    model: str = "gemini-3-practice"

    def client(self, http: httpx2.AsyncClient) -> Any:
        """Make the client of an agent."""
        del http
        transport = httpx.ASGITransport(app=self.service.app)
        options = {"base_url": "http://model/gemini", "async_client_args": {"transport": transport}}
        return GeminiChatClient(model=self.model, client=genai.Client(api_key="practice", http_options=options))

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The requests that were answered, with their answers."""
        return [entry for entry in self.service.request_log.entries if entry["status"] == 200]

    @property
    def contents(self) -> list[list[dict[str, Any]]]:
        """The contents of every request, in one form."""
        return [plain(body["contents"]) for body in self.bodies]


def plain(value: Any, name: str = "") -> Any:
    """Write JSON of the API in one form: names in camel case, base64 in one alphabet."""
    if isinstance(value, dict):
        return {camel(key): value[key] if key == "args" else plain(value[key], camel(key)) for key in value}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if name in {"thoughtSignature", "data"} and isinstance(value, str):
        return value.replace("-", "+").replace("_", "/")
    return value


def camel(name: str) -> str:
    """Write a name in camel case."""
    head, *tail = name.split("_")
    return head + "".join(word.capitalize() for word in tail)


def accepted_parts(chunks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Write the parts of an answer as a client sends them back that drops nothing.

    Source: the rule of https://ai.google.dev/gemini-api/docs/thought-signatures: a part with a signature is never
    joined with another; fragments of text without one are one text.
    """
    parts: list[dict[str, Any]] = []
    for part in chunks:
        before = parts[-1] if parts else {}
        if part == {"text": ""}:
            continue
        if (
            isinstance(part.get("text"), str)
            and before.keys() == part.keys()
            and not {"thoughtSignature"} & part.keys()
        ):
            parts[-1] = {**before, "text": before["text"] + part["text"]}
        else:
            parts.append(dict(part))
    return parts
