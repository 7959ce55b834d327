"""Error messages for callers and logs."""

import pytest
from agent_framework.exceptions import ChatClientException
from agent_framework_openai import OpenAIChatClient
from openai import AsyncOpenAI

from durable_agent_host.errors import ProviderError, log_reason
from durable_agent_host.providers.openai.provider import RESPONSES
from durable_agent_host.turn.error_texts import failure_reason

REASON = "Orchestrator function 'a' failed: Activity function 'b' failed: ValueError: no [redacted] here"


@pytest.mark.parametrize(
    "details",
    [
        ' \n Result: Failure\nException: ValueError: no\nStack: Traceback (most recent call last):\n  File "/srv/a.py"',
        '\nStack:   File "/srv/a.py", line 1, in run\n    raise ValueError\n',
        '\n  File "/srv/a.py", line 1, in run',
        "\\nTraceback (most recent call last):\\n",
        "\n   at Microsoft.Azure.WebJobs.Script.Run`1.Invoke(Object value)",
        ' \n {"$type":"System.Exception, System.Private.CoreLib","StackTraceString":"   at A.B()"}',
        "\n \n",
    ],
)
@pytest.mark.parametrize("prefix", ["", "Result: Failure\nException: "])
def test_the_reason_of_a_failed_orchestration_has_no_stack(prefix: str, details: str):
    """Whoever wrote it: a Python worker, or the Durable extension; tokens are masked."""
    message = "Orchestrator function 'a' failed: Activity function 'b' failed: "
    assert failure_reason(f"{message} {prefix}ValueError: no\n sk-proj-abcdEFGH1234 here{details}") == REASON


def test_the_reason_of_a_failed_orchestration_is_short():
    """At most 600 characters, regardless of the message."""
    assert len(failure_reason("x\n" * 100_000)) == 600


async def test_the_log_contains_the_full_address_of_an_endpoint():
    """What a service said is left out, and an address with a port is not cut at its colon."""
    async with AsyncOpenAI(api_key="none", base_url="http://127.0.0.1:9/v1", max_retries=0) as sdk:
        with pytest.raises(ChatClientException) as caught:
            await OpenAIChatClient(model="m", async_client=sdk).get_response("Hi")
    error = RESPONSES.explain(caught.value)
    assert error is not None
    assert log_reason(error) == "ProviderError: the model's endpoint http://127.0.0.1:9/v1/responses cannot be reached"
    rejection = ProviderError("the model's service rejected the call with 400: a secret: of mine", retryable=False)
    assert log_reason(rejection) == "ProviderError: the model's service rejected the call with 400"
