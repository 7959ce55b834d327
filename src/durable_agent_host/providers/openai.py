"""OpenAI and Azure OpenAI Responses, through `agent_framework_openai` 1.17."""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from agent_framework import AgentResponseUpdate, Content

from durable_agent_host.errors import ProviderError, SettingError

_RETRYABLE_STATUS = frozenset({408, 409, 429})


def hosted_calls(updates: Iterable[AgentResponseUpdate]) -> dict[str, tuple[Content, ...]]:
    """Read the finished code executions from live updates.

    Only the event ``response.output_item.done`` carries the outputs, and the framework's stream parser has no branch
    for it (``code-execution`` in agent-framework-openai 1.17, ``_parse_chunk_from_openai``).

    Guarantee: pure.

    Args:
        updates: as they came; updates of other providers are passed over.

    Returns:
        Item id → the call (script, container, status) and, when there are outputs, the result.
    """
    return {
        item["id"]: _parse_code_interpreter_from_openai(item)
        for item in _done_items(updates)
        if item.get("type") == "code_interpreter_call" and item.get("id")
    }


def _done_items(updates: Iterable[AgentResponseUpdate]) -> Iterator[dict[str, Any]]:
    for update in updates:
        event = getattr(update.raw_representation, "raw_representation", None)
        if getattr(event, "type", None) == "response.output_item.done":
            yield cast("Any", event).item.model_dump(mode="json")


def _parse_code_interpreter_from_openai(item: dict[str, Any]) -> tuple[Content, ...]:
    properties = {"container_id": item["container_id"]} if item.get("container_id") else {}
    call = Content(
        "code_interpreter_tool_call",
        call_id=item["id"],
        inputs=[Content.from_text(item.get("code") or "")],
        status=item.get("status"),
        additional_properties=properties,
    )
    outputs = [_parse_output_from_openai(output) for output in item.get("outputs") or ()]
    result = Content("code_interpreter_tool_result", call_id=item["id"], outputs=outputs, status=item.get("status"))
    return call, result


def _parse_output_from_openai(output: dict[str, Any]) -> Content:
    if output.get("type") == "logs":
        return Content.from_text(output.get("logs") or "")
    if output.get("type") == "image" and output.get("url"):
        url = str(output["url"])
        if url.startswith("data:"):
            return Content("data", uri=url, media_type=url[5:].partition(";")[0] or "image/png")
        return Content("uri", uri=url, media_type="image/png")
    return Content.from_text("", additional_properties={"openai_output": output})


def explain_error(error: BaseException) -> ProviderError | None:
    """Say in a sentence why a call of the model failed, and what to do.

    Guarantee: pure.

    Args:
        error: what the agent raised; the OpenAI SDK's error is looked for in its causes.

    Returns:
        The explanation, or None when the error does not come from the OpenAI SDK.
    """
    import openai  # noqa: PLC0415 - the SDK is only needed when it has failed

    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, openai.OpenAIError):
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, openai.APITimeoutError):
        return ProviderError("the model did not answer in time; try again", retryable=True)
    if isinstance(cause, openai.APIConnectionError):
        return ProviderError(
            f"the model's endpoint {cause.request.url.copy_with(query=None)} cannot be reached: "
            "check OPENAI_BASE_URL or AZURE_OPENAI_ENDPOINT, and that the service is up",
            retryable=True,
        )
    if isinstance(cause, openai.APIStatusError):
        return _explain_status(cause)
    if isinstance(cause, openai.APIError):
        return ProviderError(f"the model's stream ended with an error: {cause.message}", retryable=True)
    return None


def _explain_status(error: Any) -> ProviderError:
    status: int = error.status_code
    body: Any = error.body
    said = (
        str(cast("dict[str, Any]", body).get("message") or error.message) if isinstance(body, dict) else error.message
    )
    advice = {
        401: "check OPENAI_API_KEY or AZURE_OPENAI_API_KEY",
        403: "check that the key may use this model",
        404: "check OPENAI_MODEL or AZURE_OPENAI_DEPLOYMENT, and the endpoint",
        429: "wait and try again, or raise the quota",
    }.get(status, "try again" if status >= 500 else "check the request and the model's name")  # noqa: PLR2004
    if getattr(error, "code", None) == "model_not_found":
        advice = "check OPENAI_MODEL or AZURE_OPENAI_DEPLOYMENT"
    try:
        retry_after = float(error.response.headers.get("retry-after", ""))
    except ValueError:
        retry_after = None
    return ProviderError(
        f"the model's service refused the call with {status}: {said.rstrip('. ')} - {advice}",
        retryable=status in _RETRYABLE_STATUS or status >= 500,  # noqa: PLR2004
        retry_after_seconds=retry_after,
    )


def chat_client_from_environment(environment: Mapping[str, str] = os.environ) -> Any:
    """Make the chat client that the environment asks for.

    ``AZURE_OPENAI_ENDPOINT`` with ``AZURE_OPENAI_DEPLOYMENT`` means Azure OpenAI, by ``AZURE_OPENAI_API_KEY`` or,
    without a key, by Entra ID; else ``OPENAI_API_KEY`` with ``OPENAI_MODEL`` (and ``OPENAI_BASE_URL``) means OpenAI.

    Args:
        environment: variable names to texts.

    Returns:
        An `agent_framework_openai.OpenAIChatClient`.

    Raises:
        SettingError: neither is set, or the model's name is missing; says what to set.
    """
    from agent_framework_openai import OpenAIChatClient  # noqa: PLC0415 - one SDK per file, loaded when used

    def setting(name: str) -> str | None:
        return environment.get(name, "").strip() or None

    endpoint, key = setting("AZURE_OPENAI_ENDPOINT"), setting("OPENAI_API_KEY")
    if endpoint:
        deployment = setting("AZURE_OPENAI_DEPLOYMENT") or setting("AZURE_OPENAI_MODEL")
        if not deployment:
            raise SettingError(
                "AZURE_OPENAI_ENDPOINT is set: set AZURE_OPENAI_DEPLOYMENT too, to the model's deployment"
            )
        azure_key = setting("AZURE_OPENAI_API_KEY")
        credential = {"api_key": azure_key} if azure_key else {"credential": _entra_credential()}
        return OpenAIChatClient(model=deployment, azure_endpoint=endpoint, **cast("dict[str, Any]", credential))
    if key:
        model = setting("OPENAI_MODEL")
        if not model:
            raise SettingError("OPENAI_API_KEY is set: set OPENAI_MODEL too, for example to gpt-5-mini")
        return OpenAIChatClient(model=model, api_key=key, base_url=setting("OPENAI_BASE_URL"))
    raise SettingError(
        "no model is configured: set AZURE_OPENAI_ENDPOINT and AZURE_OPENAI_DEPLOYMENT, or OPENAI_API_KEY and "
        "OPENAI_MODEL, in the environment or in local.settings.json (./scripts/demo needs none of them)"
    )


def _entra_credential() -> Any:
    from azure.identity.aio import DefaultAzureCredential  # noqa: PLC0415 - only without a key

    return DefaultAzureCredential()
