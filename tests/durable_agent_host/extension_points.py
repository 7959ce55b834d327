"""Agents that use the framework's extension points, one for each point and client.

The same functions make the agents for the host and for the bare framework. What runs leaves lines in the file
``LEDGER``; what it changes is in the requests that the model receives.
"""

import copy
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import openai
from agent_framework import (
    EXCLUDED_KEY,
    Agent,
    AgentContext,
    AgentMiddleware,
    ChatContext,
    ChatMiddleware,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    ContextProvider,
    FunctionInvocationContext,
    FunctionMiddleware,
    HistoryProvider,
    InMemoryHistoryProvider,
    Message,
    MiddlewareBundle,
    MiddlewareTermination,
    ResponseStream,
    agent_middleware,
    chat_middleware,
    function_middleware,
    tool,
)
from agent_framework_anthropic import AnthropicClient
from agent_framework_gemini import GeminiChatClient
from agent_framework_openai import OpenAIChatClient, OpenAIChatCompletionClient
from anthropic import AsyncAnthropic
from google import genai
from pydantic import BaseModel

from durable_agent_host import current_tool_call, durable_tool
from tests import sweeps

CallNext = Callable[[], Awaitable[None]]


def trace(line: str) -> None:
    """Add a line to the ledger; it is there when this returns."""
    with Path(os.environ["LEDGER"]).open("a") as ledger:
        ledger.write(line + "\n")


# Tools.


def look_up(word: str) -> str:
    """Look a word up."""
    trace(f"look_up {word}")
    return f"{word} is on page 7"


def fail(word: str) -> str:
    """Fail."""
    trace(f"fail {word}")
    raise ValueError(f"{word} is not in the book")


def greet(word: str, ctx: FunctionInvocationContext) -> str:
    """Greet the person in the run's arguments."""
    return f"{word}, {ctx.kwargs.get('name')}"


@durable_tool(idempotent=True)
def linger(word: str) -> str:
    """Take long at the first attempt."""
    trace(f"linger {word}")
    time.sleep(60 if current_tool_call().attempt == 1 else 0)
    return f"lingered at {word}"


def hidden(word: str) -> str:
    """Is not offered to the model."""
    trace(f"hidden {word}")
    return f"hidden {word}"


# Middleware. Each leaves a line before and after, and changes what passes.


class OnAgent(AgentMiddleware):
    """Adds a word to the last message of a run."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def process(self, context: AgentContext, call_next: CallNext) -> None:
        """Add it."""
        trace(f"{self.name} > run of {context.agent.name}")
        *before, last = context.messages
        context.messages = [*before, Message(last.role, [f"{last.text} [{self.name}]"])]
        await call_next()
        trace(f"{self.name} < run")


class OnChat(ChatMiddleware):
    """Adds a message and an option to a model call."""

    def __init__(self, name: str, **options: Any) -> None:
        self.name = name
        self.options = options

    async def process(self, context: ChatContext, call_next: CallNext) -> None:
        """Add them."""
        trace(f"{self.name} > call with {len(context.messages)} messages")
        context.messages = [*context.messages, Message("user", [f"[{self.name}]"])]
        context.options = {**(context.options or {}), **self.options}
        await call_next()
        trace(f"{self.name} < call")


class OnFunction(FunctionMiddleware):
    """Adds a word to the argument and to the result of a tool."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def process(self, context: FunctionInvocationContext, call_next: CallNext) -> None:
        """Add it."""
        arguments: Any = context.arguments
        fields = arguments.model_dump() if isinstance(arguments, BaseModel) else dict(arguments)
        trace(f"{self.name} > {context.function.name} {fields}")
        context.arguments = fields | {"word": f"{fields['word']} [{self.name}]"}
        await call_next()
        context.result = f"{text_of(context.result)} [{self.name}]"
        trace(f"{self.name} < {context.function.name}")


def text_of(result: Any) -> str:
    """Read the result of a tool."""
    return "".join(str(getattr(item, "text", item)) for item in result) if isinstance(result, list) else str(result)


def on_agent(name: str) -> Any:
    """Make the middleware as a decorated function."""

    @agent_middleware
    async def on_run(context: AgentContext, call_next: CallNext) -> None:
        await OnAgent(name).process(context, call_next)

    return on_run


def on_chat(name: str, **options: Any) -> Any:
    """Make the middleware as a decorated function."""

    @chat_middleware
    async def on_model_call(context: ChatContext, call_next: CallNext) -> None:
        await OnChat(name, **options).process(context, call_next)

    return on_model_call


def on_function(name: str) -> Any:
    """Make the middleware as a decorated function."""

    @function_middleware
    async def on_tool_call(context: FunctionInvocationContext, call_next: CallNext) -> None:
        await OnFunction(name).process(context, call_next)

    return on_tool_call


@function_middleware
async def guard(context: FunctionInvocationContext, call_next: CallNext) -> None:
    """Forbid every tool."""
    trace(f"guard > {context.function.name}")
    raise PermissionError("policy says no")


@function_middleware
async def stop_at_tools(context: FunctionInvocationContext, call_next: CallNext) -> None:
    """End a run at its first tool call."""
    trace(f"stop > {context.function.name}")
    raise MiddlewareTermination("not today", result="stopped")


@function_middleware
async def replace_tool_result(context: FunctionInvocationContext, call_next: CallNext) -> None:
    """Answer instead of the tool."""
    trace(f"answer > {context.function.name}")
    context.result = "from the cache"


@chat_middleware
async def replace_model_response(context: ChatContext, call_next: CallNext) -> None:
    """Answer instead of the model, when the tool has answered."""
    if any(content.type == "function_result" for content in context.messages[-1].contents):
        trace("cache > call")
        response = ChatResponse(messages=[Message("assistant", ["from the cache"])])
        context.result = as_result(response, context)
        return
    await call_next()


def as_result(response: ChatResponse, context: ChatContext) -> Any:
    """Return an answer in the form in which the call wants it."""
    if not context.stream:
        return response

    async def updates() -> AsyncIterator[ChatResponseUpdate]:
        for message in response.messages:
            yield ChatResponseUpdate(contents=message.contents, role=message.role)

    return ResponseStream(updates(), finalizer=ChatResponse.from_updates)


@agent_middleware
async def pass_arguments(context: AgentContext, call_next: CallNext) -> None:
    """Give the run options, arguments for its tools, and middleware of its own."""
    context.options = {**(context.options or {}), "temperature": 0.25}
    context.function_invocation_kwargs = {**(context.function_invocation_kwargs or {}), "name": "Ada"}
    middleware = [OnFunction("run-function"), OnChat("run-chat")]
    client_kwargs = dict(context.client_kwargs or {})
    context.client_kwargs = client_kwargs | {"middleware": [*(client_kwargs.get("middleware") or ()), *middleware]}
    await call_next()


@chat_middleware
async def replace_stream(context: ChatContext, call_next: CallNext) -> None:
    """Write texts of the answer in capitals, in new objects."""

    def loud(update: ChatResponseUpdate) -> ChatResponseUpdate:
        new_update = copy.copy(update)
        new_update.contents = [
            Content.from_text(content.text.upper()) if content.text else content for content in update.contents
        ]
        return new_update

    context.stream_update_transforms.append(loud)
    await call_next()


@agent_middleware
async def change_run(context: AgentContext, call_next: CallNext) -> None:
    """Write texts of the answer in capitals."""
    context.stream_update_transforms.append(louder)
    await call_next()


def louder(update: Any) -> Any:
    """Write the texts of an update or a message in capitals, in place."""
    for content in update.contents:
        if content.type == "text":
            content.text = content.text.upper()
    return update


@chat_middleware
async def change_stream(context: ChatContext, call_next: CallNext) -> None:
    """Write texts of the answer in capitals."""
    context.stream_update_transforms.append(louder)
    await call_next()


# Context providers.


class Book(ContextProvider):
    """Adds everything that a context provider can add."""

    def __init__(self, name: str = "book", middleware: Sequence[Any] = ()) -> None:
        super().__init__(name)
        self.middleware = middleware

    async def before_run(self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]) -> None:
        """Add it."""
        state["runs"] = state.get("runs", 0) + 1
        trace(f"{self.source_id} before run {state['runs']}: {[message.text for message in context.input_messages]}")
        context.extend_instructions(self.source_id, f"Use {self.source_id}, run {state['runs']}.")
        context.extend_messages(self.source_id, [Message("user", [f"From {self.source_id}: it has nine pages."])])
        context.extend_tools(self.source_id, [tool(hidden, name=f"of_{self.source_id}")])
        if self.middleware:
            context.extend_middleware(self.source_id, self.middleware)

    async def after_run(self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]) -> None:
        """Note what was said."""
        texts = [message.text for message in context.response.messages if message.text]
        trace(f"{self.source_id} after run {state['runs']}: {texts}")


class Notes(HistoryProvider):
    """Keeps a copy of the conversation, and loads nothing."""

    def __init__(self, *, loads: bool = False) -> None:
        super().__init__("notes", load_messages=loads)
        self.messages_by_session: dict[str, list[Message]] = {}

    async def get_messages(self, session_id: str | None, *, state: Any = None, **kwargs: Any) -> list[Message]:
        """Give what was kept."""
        return list(self.messages_by_session.get(str(session_id), ()))

    async def save_messages(
        self, session_id: str | None, messages: Sequence[Message], *, state: Any = None, **kwargs: Any
    ) -> None:
        """Keep messages."""
        self.messages_by_session.setdefault(str(session_id), []).extend(messages)
        trace(f"notes: {[(message.role, message.text.strip()) for message in messages]}")


async def newest_question(messages: list[Message]) -> bool:
    """Leave out what was said before the newest question."""
    last = max((index for index, message in enumerate(messages) if message.role == "user"), default=0)
    for message in messages[:last]:
        if message.role != "system":
            message.additional_properties[EXCLUDED_KEY] = True
    return last > 0


class Page(BaseModel):
    """A place in a book."""

    page: int


SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "Page", "strict": True, "schema": Page.model_json_schema()},
}


# Clients.


CLOSING: list[Callable[[], Awaitable[Any]]] = []
"""Closes each client that was made."""


async def close_clients() -> None:
    """Close the clients that were made; what is built later gets new ones."""
    while CLOSING:
        await CLOSING.pop()()
    for make in (openai_sdk, anthropic_sdk, gemini_sdk):
        make.cache_clear()


@cache
def openai_sdk(url: str, *headers: tuple[str, str]) -> openai.AsyncOpenAI:
    """Make the SDK's client."""
    sdk = openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", default_headers=dict(headers), max_retries=0)
    CLOSING.append(sdk.close)
    return sdk


@cache
def anthropic_sdk(url: str, *headers: tuple[str, str]) -> AsyncAnthropic:
    """Make the SDK's client."""
    sdk = AsyncAnthropic(api_key="k", base_url=f"{url}/anthropic", default_headers=dict(headers), max_retries=0)
    CLOSING.append(sdk.close)
    return sdk


@cache
def gemini_sdk(url: str, *headers: tuple[str, str]) -> genai.Client:
    """Make the SDK's client."""
    options = genai.types.HttpOptions(base_url=f"{url}/gemini", headers=dict(headers))
    sdk = genai.Client(api_key="k", vertexai=False, http_options=options)
    CLOSING.append(sdk.aio.aclose)
    return sdk


def responses(url: str, headers: Mapping[str, str], **more: Any) -> Any:
    """Make a client of the Responses API."""
    return OpenAIChatClient(model="practice", async_client=openai_sdk(url, *headers.items()), **more)


def chat(url: str, headers: Mapping[str, str], **more: Any) -> Any:
    """Make a client of Chat Completions."""
    return OpenAIChatCompletionClient(model="practice", async_client=openai_sdk(url, *headers.items()), **more)


def anthropic(url: str, headers: Mapping[str, str], **more: Any) -> Any:
    """Make a client of Anthropic's Messages API."""
    return AnthropicClient(model="practice", anthropic_client=anthropic_sdk(url, *headers.items()), **more)


def gemini(url: str, headers: Mapping[str, str], **more: Any) -> Any:
    """Make a client of Gemini."""
    return GeminiChatClient(model="gemini-3-practice", client=gemini_sdk(url, *headers.items()), **more)


CLIENTS: Mapping[str, Callable[..., Any]] = {
    "responses": responses,
    "chat": chat,
    "anthropic": anthropic,
    "gemini": gemini,
}
"""Name → how to make the client."""

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "responses": {"store": False, "include": ["reasoning.encrypted_content"]},
    "anthropic": {"max_tokens": 1000},
}
"""Client → options that all its agents have."""


# Extension points.


@dataclass(frozen=True)
class Point:
    """One extension point.

    Attributes:
        agent: arguments of the agent; a function makes them anew for every agent.
        client: arguments of its client.
        attributes: of its client, which not every class takes as arguments.
        options: of the agent.
        headers: of the SDK's client.
        tool: that the model calls.
        rounds: how often it calls it before it answers.
        turns: how many turns the test runs.
        answer: of the model.
        make: makes the agent, from what makes its client and its other arguments.
        is_factory: whether the host gets a function that makes the agent.
    """

    agent: Callable[[], Mapping[str, Any]] = dict
    client: Callable[[], Mapping[str, Any]] = dict
    attributes: Callable[[], Mapping[str, Any]] = dict
    options: Mapping[str, Any] | Callable[[str], Mapping[str, Any]] | None = None
    headers: Mapping[str, str] | None = None
    tool: str = "look_up"
    rounds: int = 1
    turns: int = 2
    answer: str = "Page 7."
    make: Callable[..., Any] | None = None
    is_factory: bool = False

    def build(self, name: str, client: str, url: str) -> Any:
        """Make the agent."""

        def new_client(**more: Any) -> Any:
            chat_client = CLIENTS[client](url, self.headers or {}, **more)
            for attribute, value in self.attributes().items():
                setattr(chat_client, attribute, value)
            return chat_client

        point_options = self.options(client) if callable(self.options) else self.options
        more = dict(self.agent())
        options = {**OPTIONS.get(client, {}), **(point_options or {})}
        arguments = {"name": name, "tools": [look_up, fail, greet, linger], "default_options": options} | more
        if self.make is not None:
            return self.make(new_client, arguments)
        return Agent(new_client(**self.client()), "Be brief.", **arguments)


def with_expert(new_client: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Make an agent whose tool is an agent with extensions of its own."""
    expert = Agent(
        new_client(middleware=[OnFunction("expert-client-function"), OnChat("expert-client-chat")]),
        "Be an expert.",
        name=f"{arguments['name']}-expert",
        tools=[look_up],
        middleware=[OnAgent("expert-agent"), on_chat("expert-chat"), on_function("expert-function")],
        context_providers=[Book("shelf", [on_function("shelf-function"), OnChat("shelf-chat")])],
        default_options=arguments["default_options"] | {"temperature": 0.75},
    )
    expert_tool = expert.as_tool(name="ask_expert", arg_name="word", arg_description="A word.")
    middleware = [OnFunction("outer-function"), OnChat("outer-chat"), OnAgent("outer-agent")]
    return Agent(new_client(), "Ask the expert.", **arguments | {"tools": [expert_tool], "middleware": middleware})


def limits(**configuration: Any) -> Callable[[], Mapping[str, Any]]:
    """Configure how the client calls tools."""
    return lambda: {"function_invocation_configuration": configuration}


def everywhere() -> Mapping[str, Any]:
    """Give the agent middleware of every kind, in both forms."""
    middleware = [
        OnAgent("agent-1"),
        on_chat("chat-1"),
        OnFunction("function-1"),
        on_agent("agent-2"),
        OnChat("chat-2"),
        on_function("function-2"),
    ]
    books = [
        Book("first", [OnFunction("first-function"), OnChat("first-chat")]),
        Book("second", [on_chat("second-chat"), on_function("second-function")]),
    ]
    return {"middleware": middleware, "context_providers": books}


def on_client() -> Mapping[str, Any]:
    """Give the client middleware of every kind, in both forms."""
    middleware = [OnChat("client-chat-1"), on_function("client-function-1"), OnFunction("client-function-2")]
    return {"middleware": [*middleware, on_chat("client-chat-2")]}


def supported_options(client: str) -> Mapping[str, Any]:
    """Return options that the client's service knows."""
    common_options: dict[str, Any] = {"temperature": 0.5, "top_p": 0.5}
    match client:
        case "responses":
            return common_options | {
                "max_tokens": 500,
                "user": "ada",
                "metadata": {"team": "blue"},
                "allow_multiple_tool_calls": False,
                "reasoning": {"effort": "low"},
                "prompt_cache_key": "book",
                "truncation": "auto",
                "extra_headers": {"x-from-options": "yes"},
            }
        case "chat":
            return common_options | {
                "max_tokens": 500,
                "user": "ada",
                "metadata": {"team": "blue"},
                "seed": 7,
                "stop": ["END"],
                "presence_penalty": 0.5,
                "frequency_penalty": 0.5,
                "logit_bias": {"50256": -100},
                "allow_multiple_tool_calls": False,
                "extra_headers": {"x-from-options": "yes"},
                "extra_body": {"from_options": True},
            }
        case "anthropic":
            return {
                "user": "ada",
                "stop": ["END"],
                "thinking": {"type": "enabled", "budget_tokens": 1024},
                "max_tokens": 2000,
                "service_tier": "auto",
                "additional_beta_flags": ["a-beta-2026-01-01"],
            }
        case _:
            return common_options | {
                "max_tokens": 500,
                "seed": 7,
                "stop": ["END"],
                "presence_penalty": 0.5,
                "frequency_penalty": 0.5,
                "top_k": 5,
                "thinking_config": {"thinking_budget": 100},
            }


POINTS: Mapping[str, Point] = {
    "nothing": Point(),
    "bundle": Point(lambda: {"middleware": [MiddlewareBundle([OnAgent("a"), OnChat("b"), on_function("c")])]}),
    "all-middleware": Point(everywhere, client=on_client, rounds=2),
    "factory": Point(everywhere, client=on_client, is_factory=True),
    "run-middleware": Point(lambda: {"middleware": [pass_arguments]}, tool="greet"),
    "guard": Point(lambda: {"middleware": [guard]}),
    "guard-of-client": Point(client=lambda: {"middleware": [guard]}),
    "guard-of-provider": Point(lambda: {"context_providers": [Book("book", [guard])]}),
    "termination": Point(lambda: {"middleware": [stop_at_tools]}, turns=1),
    "cached-tool": Point(lambda: {"middleware": [replace_tool_result]}),
    "cached-answer": Point(lambda: {"middleware": [replace_model_response]}, turns=1),
    "changed-stream": Point(lambda: {"middleware": [change_stream]}),
    "replaced-stream": Point(lambda: {"middleware": [replace_stream]}),
    "changed-run": Point(lambda: {"middleware": [change_run]}),
    "context-providers": Point(lambda: {"context_providers": [Book("book"), Book("shelf")]}, tool="of_book"),
    "history-in-place": Point(lambda: {"context_providers": [Book("book"), InMemoryHistoryProvider(), Book("shelf")]}),
    "audit": Point(lambda: {"context_providers": [Notes()]}),
    "history": Point(lambda: {"context_providers": [Notes(loads=True)], "middleware": [OnAgent("a")]}),
    "history-per-call": Point(
        lambda: {"context_providers": [Notes(loads=True)], "require_per_service_call_history_persistence": True}
    ),
    "options": Point(options=supported_options, headers={"x-team": "blue"}),
    "tool-arguments": Point(options={"additional_function_arguments": {"name": "Ada"}}, tool="greet"),
    "tool-choice-named": Point(options={"tool_choice": {"mode": "required", "required_function_name": "look_up"}}),
    "tool-choice-none": Point(options={"tool_choice": "none"}, rounds=0),
    "response-format": Point(options={"response_format": Page}, answer='{"page": 7}'),
    "response-schema": Point(options={"response_format": SCHEMA}, answer='{"page": 7}'),
    "compaction-of-agent": Point(lambda: {"compaction_strategy": newest_question}),
    "compaction-of-client": Point(attributes=lambda: {"compaction_strategy": newest_question}),
    "max-iterations": Point(client=limits(max_iterations=1)),
    "max-calls": Point(client=limits(max_function_calls=1)),
    "consecutive-errors": Point(client=limits(max_consecutive_errors_per_request=1), tool="fail"),
    "detailed-errors": Point(client=limits(include_detailed_errors=True), tool="fail"),
    "additional-tools": Point(client=limits(additional_tools=[tool(hidden)]), tool="hidden", turns=1),
    "unknown-tool": Point(tool="unheard_of"),
    "calls-off": Point(client=limits(enabled=False), rounds=0),
    "agent-in-agent": Point(make=with_expert, tool="ask_expert"),
}
"""Name → what its agents have."""


def draw_pairs() -> list[tuple[str, str]]:
    """Choose a client for each point; a long sweep has all of them."""
    chance = sweeps.chooser("extension points")
    return [
        (client, point) for point in POINTS for client in (CLIENTS if sweeps.IS_LONG else [chance.choice([*CLIENTS])])
    ]


PAIRS = draw_pairs()
"""The pairs of this run; the app draws the same ones."""


def name_of(point: str, client: str) -> str:
    """Name an agent."""
    return f"{client}-{point}"


def all_agents(url: str) -> list[Any]:
    """Make the agents of the app."""

    def source(client: str, point: str) -> Any:
        build = partial(POINTS[point].build, name_of(point, client), client, url)
        return build if POINTS[point].is_factory else build()

    return [source(*pair) for pair in PAIRS]
