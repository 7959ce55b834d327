"""What an app chooses for its agents, checked when the app starts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from agent_framework import SupportsAgentRun

from durable_agent_host.agent.feature import AgentFeature, history_of
from durable_agent_host.agent.hosted_agent import why_no_journal
from durable_agent_host.agent.nested_agents import list_agents
from durable_agent_host.app_functions import LineRedaction, check_hook
from durable_agent_host.errors import RegistrationError
from durable_agent_host.redaction import add_redaction
from durable_agent_host.turn.request_options import AllowedOptions
from durable_agent_host.turn.turn_redactor import Redact, Redactor


@dataclass(frozen=True)
class AgentOptions:
    """What an app chooses for one agent, its own defaults included.

    Attributes:
        new_agent: the function that builds the agent for every run, if the app has given one.
        allowed_options: options that clients may set for a turn.
        ttl_seconds: how long sessions are kept after their last use; 0 for ever.
        features: of the agent, in the order of their layers.
        redactor: for stored and shown data; None for no redaction.
    """

    new_agent: Callable[[], SupportsAgentRun] | None
    allowed_options: AllowedOptions
    ttl_seconds: float
    features: Sequence[AgentFeature]
    redactor: Redactor | None


def check_tools(agent: SupportsAgentRun) -> None:
    """Check that tools are tools, and that those that need approval are of an agent with a journal: others ask nobody.

    Raises:
        RegistrationError: one does not, of the agent or of those within it.
    """
    for member in list_agents(agent):
        for tool in (*(member.default_options.get("tools") or ()), *member.mcp_tools):
            if isinstance(tool, str | int | None) or hasattr(tool, "as_tool"):
                raise RegistrationError(
                    f"agent {member.name!r} has {tool!r} as a tool: write the function, or AGENT.as_tool()"
                )
            if getattr(tool, "approval_mode", None) == "always_require" and (why_not := why_no_journal(member)):
                raise RegistrationError(
                    f"tool {tool.name!r} of agent {member.name!r} needs approval, for which nobody would be asked: "
                    f"{why_not}"
                )


def choose_redactor(name: str, features: Sequence[AgentFeature], redact: Redact | None) -> Redactor | None:
    """Return the redactor of an agent; it also applies to all errors and log lines.

    Raises:
        RegistrationError: the agent cannot be redacted, the function is not callable, or it fails for any text.
    """
    if redact is None:
        return None
    check_hook("redact", redact, "content", is_plain=True)
    if why_not := history_of(features).why_no_redaction:
        raise RegistrationError(f"agent {name!r} cannot be redacted: {why_not}")
    try:
        return _redactor_of(redact)
    except ValueError as error:
        raise RegistrationError(f"agent {name!r} cannot have its 'redact': {error}") from None


@cache
def _redactor_of(redact: Redact) -> Redactor:
    redactor = Redactor(redact)
    redactor.check()
    add_redaction(LineRedaction(redactor.text_or_mask))
    return redactor
