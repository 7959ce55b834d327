"""What upstream's samples 11 and 13 do, in one app: workflows in parallel, and with a person."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Never

from agent_framework import (
    Agent,
    AgentExecutorRequest,
    AgentExecutorResponse,
    Executor,
    Message,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    executor,
    handler,
    response_handler,
)
from agent_framework_azurefunctions import WorkflowHitlContext
from agent_framework_openai import OpenAIChatClient
from pydantic import BaseModel

if os.environ.get("HOST_CLASS") == "upstream":
    from agent_framework_azurefunctions import AgentFunctionApp
else:
    from durable_agent_host import DurableAgentApp as AgentFunctionApp


@dataclass
class Count:
    """What a counter found."""

    name: str
    count: int
    text: str


@dataclass
class Submission:
    """Something to be published."""

    content_id: str
    body: str


@dataclass
class Question:
    """What a person is asked."""

    content_id: str
    prompt: str


class Decision(BaseModel):
    """What a person answers."""

    approved: bool
    notes: str = ""


@dataclass
class Decided:
    """The end of a review."""

    content_id: str
    approved: bool
    notes: str


@dataclass
class Notice:
    """Tells the notifier which question waits."""

    request_id: str


def ask(text: str) -> AgentExecutorRequest:
    """Ask an agent."""
    return AgentExecutorRequest(messages=[Message("user", [text])], should_respond=True)


client = OpenAIChatClient(
    model=os.environ["OPENAI_MODEL"], api_key=os.environ["OPENAI_API_KEY"], base_url=os.environ["OPENAI_BASE_URL"]
)


@executor(id="route")
async def route(text: str, ctx: WorkflowContext[str]) -> None:
    """Give the text to all counters."""
    await ctx.send_message(text)


@executor(id="words")
async def word_counter(text: str, ctx: WorkflowContext[Count]) -> None:
    """Count words."""
    await ctx.send_message(Count("words", len(text.split()), text))


@executor(id="letters")
async def letters(text: str, ctx: WorkflowContext[Count]) -> None:
    """Count letters."""
    await ctx.send_message(Count("letters", len(text), text))


@executor(id="gather")
async def gather(counts: list[Count], ctx: WorkflowContext[str]) -> None:
    """Wait for all counters, and ask the agents."""
    found = ", ".join(f"{count.name} {count.count}" for count in sorted(counts, key=lambda count: count.name))
    await ctx.send_message(f"{counts[0].text} ({found})")


@executor(id="combine")
async def combine(analyses: list[AgentExecutorResponse], ctx: WorkflowContext[str]) -> None:
    """Put the agents' answers together."""
    texts = {analysis.executor_id: analysis.agent_response.text for analysis in analyses}
    await ctx.send_message(" | ".join(f"{name}: {text}" for name, text in sorted(texts.items())))


@executor(id="statistics")
async def statistics(text: str, ctx: WorkflowContext[Count]) -> None:
    """Count what the agents said, beside the agent that sums it up."""
    await ctx.send_message(Count("statistics", len(text), text))


class Report(Executor):
    """Takes answers of agents and counters alike."""

    @handler
    async def write(self, analyses: list[AgentExecutorResponse | Count], ctx: WorkflowContext[Never, str]) -> None:
        """Write the report."""
        lines = [
            f"{analysis.executor_id}: {analysis.agent_response.text}"
            if isinstance(analysis, AgentExecutorResponse)
            else f"{analysis.name}: {analysis.text}"
            for analysis in analyses
        ]
        await ctx.yield_output("\n".join(sorted(lines)))


mood = Agent(client, "You feel moods.", name="mood")
keywords = Agent(client, "You find keywords.", name="keywords")
summary = Agent(client, "You sum up.", name="summary")
report = Report(id="report")
parallel = (
    WorkflowBuilder(name="parallel", start_executor=route)
    .add_fan_out_edges(route, [word_counter, letters])
    .add_fan_in_edges([word_counter, letters], gather)
    .add_fan_out_edges(gather, [mood, keywords])
    .add_fan_in_edges([mood, keywords], combine)
    .add_fan_out_edges(combine, [summary, statistics])
    .add_fan_in_edges([summary, statistics], report)
    .build()
)


class Authorizer(Executor):
    """The inner workflow's question."""

    @handler
    async def ask(self, submission: Submission, ctx: WorkflowContext[Notice]) -> None:
        """Tell the notifier, and ask under the id that it was told."""
        request_id = f"ask-{submission.content_id}"
        await ctx.send_message(Notice(request_id), target_id="notify")
        await ctx.request_info(Question(submission.content_id, submission.body), Decision, request_id=request_id)

    @response_handler
    async def pass_decision(self, question: Question, answer: Decision, ctx: WorkflowContext[Never, Decided]) -> None:
        """Give the decision to the outer workflow."""
        await ctx.yield_output(Decided(question.content_id, answer.approved, answer.notes))


class Notify(Executor):
    """Writes down where to answer."""

    @handler
    async def notify(self, notice: Notice, ctx: WorkflowContext) -> None:
        """Build the URL, as an e-mail would have it."""
        where = WorkflowHitlContext.from_context(ctx)
        url = where.build_respond_url(notice.request_id) if where else "nowhere"
        Path(os.environ["LEDGER"]).write_text(url)


class Intake(Executor):
    """The outer workflow's beginning."""

    @handler
    async def pass_submission(self, submission: Submission, ctx: WorkflowContext[Submission]) -> None:
        """Pass it on."""
        await ctx.send_message(submission)


class Publish(Executor):
    """The outer workflow's end."""

    @handler
    async def publish(self, decision: Decided, ctx: WorkflowContext[Never, str]) -> None:
        """Say what became of it."""
        await ctx.yield_output(
            f"{decision.content_id} {'PUBLISHED' if decision.approved else 'DROPPED'}: {decision.notes}"
        )


gate, notify = Authorizer(id="gate"), Notify(id="notify")
human_review = WorkflowBuilder(name="human_review", start_executor=gate).add_edge(gate, notify).build()
intake, review_sub, publish = (
    Intake(id="intake"),
    WorkflowExecutor(human_review, id="review_sub"),
    Publish(id="publish"),
)
review_workflow = (
    WorkflowBuilder(name="composed", start_executor=intake)
    .add_edge(intake, review_sub)
    .add_edge(review_sub, publish)
    .build()
)

app = AgentFunctionApp(workflow=parallel, workflows=[review_workflow])
