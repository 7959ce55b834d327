"""What OpenAI's clients do with images, audio and files, and what is refused before the model is asked."""

import pytest
from agent_framework import Content, Message

from durable_agent_host.errors import RequestError
from durable_agent_host.providers.chat_completions.provider import CHAT
from durable_agent_host.providers.openai.provider import RESPONSES


def data(media_type, name=None):
    return Content("data", uri=f"data:{media_type};base64,YWJj", media_type=media_type, name=name)


IMAGE, PDF, CSV, WAV, OGG = map(data, ("image/png", "application/pdf", "text/csv", "audio/wav", "audio/ogg"))
AUDIO_URL = Content.from_uri("https://a/b.wav", media_type="audio/wav")
PDF_URL = Content.from_uri("https://a/b.pdf", media_type="application/pdf")
HOSTED = Content.from_hosted_file("file-1")


@pytest.mark.parametrize(
    ("provider", "taken", "refused"),
    [
        (RESPONSES, [IMAGE, PDF, CSV, WAV, PDF_URL, HOSTED], [OGG, AUDIO_URL]),
        (CHAT, [IMAGE, PDF, WAV], [CSV, OGG, AUDIO_URL, PDF_URL, HOSTED]),
    ],
)
def test_what_a_client_would_leave_out_is_refused(provider, taken, refused):
    """A caller learns that a part would not reach the model; what reaches it passes."""
    provider.check_message(Message("user", ["look", *taken]))
    for content in refused:
        with pytest.raises(RequestError, match=(content.media_type or content.type).partition("/")[0]):
            provider.check_message(Message("user", ["look", content]))
