"""What callers are told of errors."""

import pytest

from durable_agent_host.errors import failure_reason

REASON = "Orchestrator function 'a' failed: Activity function 'b' failed: ValueError: no api_key=[redacted] here"


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
@pytest.mark.parametrize("own", ["", "Result: Failure\nException: "])
def test_the_reason_of_a_failed_orchestration_has_no_stack(own: str, details: str):
    """Whoever wrote it: a Python worker, or the Durable extension; keys are left out."""
    failed = "Orchestrator function 'a' failed: Activity function 'b' failed: "
    assert failure_reason(f"{failed} {own}ValueError: no\n api_key=s3cr3t-k3y here{details}") == REASON


def test_the_reason_of_a_failed_orchestration_is_short():
    """At most 600 characters, whatever the message has."""
    assert len(failure_reason("x\n" * 100_000)) == 600
