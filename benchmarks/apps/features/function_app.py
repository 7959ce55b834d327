"""The benchmark's agents in an app with one feature, which the environment names."""

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from agents import agents

from durable_agent_host import Budget, Budgets, DurableAgentApp, Principal, redact_secrets

FEATURE = os.environ.get("FEATURE", "none")


def caller(request: Any) -> Principal:
    """Identify everybody by a header."""
    return Principal(request.headers.get("x-who", "ada"))


OF_THE_APP: dict[str, dict[str, Any]] = {
    "redaction": {"redact": redact_secrets},
    "budgets": {"budgets": Budgets(session=Budget(tokens=1_000_000_000), turn=Budget(model_calls=50))},
    "owners": {"identify": caller},
}
if FEATURE == "telemetry":
    from agent_framework.observability import configure_otel_providers

    configure_otel_providers()
app = DurableAgentApp(agents=agents(), **OF_THE_APP.get(FEATURE, {}))
