"""Agents as MCP tools: one that says what it has seen, and one that fails."""

from typing import Any

from agent_framework import AgentResponse, Message

from durable_agent_host import DurableAgentApp


class Counting:
    """An agent that says how many messages it has seen."""

    id = name = "Counting"
    description = "counts"

    def run(self, messages: list[Message], **options: Any) -> Any:
        """Answer with the number of messages and the last one."""
        del options

        async def answer() -> AgentResponse[Any]:
            return AgentResponse(messages=[Message("assistant", [f"{len(messages)}: {messages[-1].text}"])])

        return answer()


class Failing:
    """An agent that fails."""

    id = name = "Failing"
    description = "fails"

    def run(self, messages: list[Message], **options: Any) -> Any:
        """Fail."""
        del messages, options
        raise ValueError("the printer is on fire")


app = DurableAgentApp(agents=[Counting(), Failing()], enable_mcp_tool_trigger=True)
