"""What each model service takes in a request: one row per service, and how a row is found. Pure data.

Rules belong to the service, not to the dialect: many services speak Chat Completions or Responses and refuse what
OpenAI takes. Those who write requests read these rows. The stored
conversation does not change.

A row is found by the client's base URL. Behind a proxy the URL says nothing; the app names the row with
``client.additional_properties["service"] = "Mistral"``. Every other service gets `UNKNOWN`.

In no row may the ids of calls repeat within a request: DeepSeek refuses it (craft-ai-agents/craft-agents-oss#630), and
no service needs it. A default is the value of `UNKNOWN`; a row differs from it only where its sources say so.
"""

import re
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from durable_agent_host.errors import RegistrationError

_ANY: Final = re.compile(r".+", re.DOTALL)
_NONE: Final = re.compile(r"(?!)")
_IMAGES: Final = r"image/.*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What one service takes.

    Attributes:
        name: of the service; an app writes it, in any case.
        address: pattern of its host and port.
        client_class: a class of the framework's or the SDK's client that is only for this service.
        call_ids: the ids of calls that it accepts; others are replaced, and their results follow.
        accepts_any_arguments: whether the arguments of an earlier call may be no JSON object.
        accepts_repeated_roles: whether messages of one role may follow each other.
        accepts_user_after_tool: whether a user's message may follow a tool's.
        accepts_later_system: whether a system message may stand behind others, and how many there are.
        has_developer_role: whether it knows the role ``developer``.
        accepts_null_content: whether ``content`` may be null in a message with calls.
        accepts_empty_content: whether ``content`` may be empty in a message with calls, or in a result.
        needs_message_ids: whether an assistant's message in the Responses API needs ``id`` and ``status``.
        files: types of the files that a user's message may have.
        accepts_files_in_results: whether the Responses API takes lists with images and files as the output of a call.
        checks_items: whether the Responses API refuses ids of items that occur twice or have over 64 characters, and
            reasoning without the item that followed it.
        accepts_reasoning_texts: whether the Responses API takes back reasoning that is not encrypted.
        rejected_fields: fields of a request, a tool or a message that it refuses.
    """

    name: str
    address: str = ""
    client_class: str = ""
    call_ids: re.Pattern[str] = _ANY
    accepts_any_arguments: bool = False
    accepts_repeated_roles: bool = False
    accepts_user_after_tool: bool = True
    accepts_later_system: bool = False
    has_developer_role: bool = False
    accepts_null_content: bool = True
    accepts_empty_content: bool = True
    needs_message_ids: bool = False
    files: re.Pattern[str] = re.compile(rf"{_IMAGES}|audio/(wav|x-wav|wave|vnd\.wave|mp3|mpeg)|application/pdf")
    accepts_files_in_results: bool = True
    checks_items: bool = False
    accepts_reasoning_texts: bool = True
    rejected_fields: frozenset[str] = frozenset()

    def accepts_type(self, media_type: str | None) -> bool:
        """Return whether a user's message may have a file of a type, with or without parameters."""
        return self.files.fullmatch(str(media_type).partition(";")[0].lower()) is not None


UNKNOWN: Final = Service(name="unknown")

_OPENAI: Final = Service(
    name="OpenAI",  # recorded requests; developers' reference of Chat Completions and Responses
    address=r"api\.openai\.com(:.*)?",
    accepts_any_arguments=True,
    accepts_repeated_roles=True,
    accepts_later_system=True,
    has_developer_role=True,
    checks_items=True,  # recorded errors; can1357/oh-my-pi#284; reasoning needs no id: NousResearch/hermes-agent#10788
    accepts_reasoning_texts=False,  # musistudio/claude-code-router#1783
)

SERVICES: Final = (
    _OPENAI,
    replace(
        _OPENAI,
        name="Azure OpenAI",  # as OpenAI; what a model refuses depends on the model (openai/openai-python#1492)
        client_class="AsyncAzureOpenAI",
        address=r".*\.(openai\.azure\.(com|us|cn)|cognitiveservices\.azure\.com)(:.*)?",
    ),
    replace(
        _OPENAI,
        name="Foundry",
        client_class="RawFoundryChatClient",
        address=r".*\.services\.ai\.azure\.com(:.*)?",
        accepts_files_in_results=False,  # agent-framework-foundry 1.15, SUPPORTS_RICH_FUNCTION_OUTPUT
    ),
    Service(
        name="xAI",
        address=r"(.*\.)?api\.x\.ai(:.*)?",
        accepts_null_content=False,  # langchain-ai/langchain#34140
    ),
    Service(
        name="Mistral",
        address=r"(.*\.)?api\.mistral\.ai(:.*)?",
        call_ids=re.compile(r"[a-zA-Z0-9]{9}"),  # anomalyco/opencode#1680
        accepts_user_after_tool=False,  # mistralai/mistral-common#169
        # Gage-Technologies/mistral-go#2 (name), BerriAI/litellm#30835 (reasoning_content),
        # editor-code-assistant/eca#231 (max_completion_tokens)
        rejected_fields=frozenset({"max_completion_tokens", "name", "reasoning_content"}),
    ),
    Service(
        name="Groq",
        address=r"(.*\.)?api\.groq\.com(:.*)?",
        # janhq/jan#8136 (reasoning_content), karthink/gptel#774 (reasoning), fanenr/chatbot#21 (store)
        rejected_fields=frozenset({"reasoning", "reasoning_content", "store"}),
    ),
    Service(
        name="DeepSeek",
        address=r"(.*\.)?api\.deepseek\.com(:.*)?",
        # has_developer_role: earendil-works/pi#1048
        files=_NONE,  # ChatLunaLab/chatluna#867
    ),
    Service(
        name="OpenRouter", address=r"(.*\.)?openrouter\.ai(:.*)?"
    ),  # the rules are the model's: charmbracelet/crush#279
    Service(
        name="vLLM",
        address=r".*:8000",
        # accepts_any_arguments: vllm-project/vllm#43995; accepts_repeated_roles: vllm-project/vllm#6862;
        # accepts_later_system: vllm-project/vllm#41114
        needs_message_ids=True,  # openai/codex#12669
    ),
    Service(
        name="Ollama",
        address=r".*:11434",
        accepts_null_content=False,  # pydantic/pydantic-ai#5206
    ),
    Service(
        name="llama.cpp",
        address=r".*:8080",
        # accepts_any_arguments: ggml-org/llama.cpp#25510; accepts_later_system: ggml-org/llama.cpp#20733
        accepts_null_content=False,  # ggml-org/llama.cpp#13471
    ),
    Service(name="LiteLLM", address=r".*:4000"),  # the rules are those of the service behind it
    Service(name="Snowflake", address=r".*\.snowflakecomputing\.com(:.*)?"),
    Service(
        name="Bedrock",
        address=r"bedrock-(runtime|mantle)\..*(:.*)?",
        accepts_empty_content=False,  # boto/botocore#3525, vercel/ai#14618
    ),
    Service(
        name="Anthropic",
        client_class="RawAnthropicClient",
        address=r"api\.anthropic\.com(:.*)?",
        call_ids=re.compile(r"[a-zA-Z0-9_-]{1,64}"),  # recorded errors
        accepts_empty_content=False,  # AnswerDotAI/claudette#59
        files=re.compile(r"image/(png|jpeg|gif|webp)|application/pdf"),  # reference of the Messages API
    ),
    Service(
        name="Gemini",
        client_class="RawGeminiChatClient",
        address=r".*generativelanguage\.googleapis\.com(:.*)?",
        files=re.compile(rf"{_IMAGES}|audio/.*|video/.*|application/pdf|text/.*"),  # reference of generateContent
    ),
    UNKNOWN,
)

ANTHROPIC: Final = next(row for row in SERVICES if row.name == "Anthropic")
GEMINI: Final = next(row for row in SERVICES if row.name == "Gemini")

NAMED_BY: Final = "service"
"""Key in a client's ``additional_properties``: the name of its service's row."""


def find_service(client: Any) -> Service:
    """Return the row of a chat client's service.

    Args:
        client: of the framework, with an SDK's client in it.

    Raises:
        RegistrationError: the app has named a service without a row.
    """
    properties = cast("dict[str, Any]", getattr(client, "additional_properties", None) or {})
    if (name := properties.get(NAMED_BY)) is not None:
        row = next((row for row in SERVICES if row.name.casefold() == str(name).casefold()), None)
        if row is None:
            names = ", ".join(row.name for row in SERVICES)
            raise RegistrationError(f"a chat client names the service {name!r}, which has no row: use one of {names}")
        return row
    sdk = getattr(client, "client", None)
    classes = {kind.__name__ for value in (client, sdk) for kind in type(value).__mro__}
    by_class = (row for row in SERVICES if row.client_class in classes)
    return next(iter((*_rows_at(getattr(sdk, "base_url", None)), *by_class, UNKNOWN)))


def _rows_at(url: Any) -> list[Service]:
    host = str(getattr(url, "host", None) or "")
    port = getattr(url, "port", None)
    address = f"{host}:{port}" if port else host
    return [row for row in SERVICES if row.address and re.fullmatch(row.address, address)]
