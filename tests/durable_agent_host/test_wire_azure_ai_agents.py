"""What an app asks of a run of Azure AI Agents, in the requests that the service gets."""

from agent_framework import Content, Message
from pydantic import BaseModel

from tests.durable_agent_host.provider_lab import ProviderLab


class Page(BaseModel):
    """A place in a book."""

    page: int


def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: found on page 7"


async def run(lab, *contents, **options):
    """Ask an agent by the client alone."""
    async with lab.agent("azure-ai-agents") as agent:
        return await agent.run(Message("user", list(contents)), options=options)


async def test_an_answer_has_the_form_that_the_app_wants():
    """The schema goes with the run, and the answer is read by it."""
    lab = ProviderLab()
    lab.plan({"text": '{"page": 7}'})
    assert (await run(lab, "Where is it?", response_format=Page)).value == Page(page=7)
    wanted = {"type": "json_schema", "json_schema": {"name": "Page", "schema": Page.model_json_schema()}}
    assert lab.bodies[-1]["response_format"] == wanted


async def test_a_run_uses_the_tools_that_the_app_chooses():
    """One by its name, some, or none."""
    chosen = {"mode": "required", "required_function_name": "look_up"}
    expected = {"type": "function", "function": {"name": "look_up"}}
    for choice, sent in ((chosen, expected), ("none", "none"), ("auto", "auto")):
        lab = ProviderLab(tools=[look_up])
        lab.plan({"text": "Done."})
        await run(lab, "Look it up.", tool_choice=choice)
        assert lab.bodies[-1]["tool_choice"] == sent


async def test_files_of_a_message_are_attached():
    """A file of the service by its id, bytes after their upload; an image is a part of the message."""
    lab = ProviderLab()
    lab.plan({"text": "Read."})
    await run(
        lab,
        "Read these.",
        Content.from_hosted_file("assistant-1"),
        Content.from_data(b"a,b\n1,2\n", "text/csv"),
        Content.from_uri("https://pictures.example/a.png", media_type="image/png"),
    )
    [posted] = [body for body in lab.bodies if body.get("role") == "user"]
    tools = [{"type": "file_search"}, {"type": "code_interpreter"}]
    known, uploaded = posted["attachments"]
    assert known == {"file_id": "assistant-1", "tools": tools}
    assert uploaded["tools"] == tools
    assert uploaded["file_id"] != known["file_id"]
    assert posted["content"] == [
        {"type": "text", "text": "Read these."},
        {"type": "image_url", "image_url": {"url": "https://pictures.example/a.png"}},
    ]
