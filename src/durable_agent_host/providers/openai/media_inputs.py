"""Images, audio and files for the Responses API, where the framework's client is incomplete.

The client drops files whose media type is not ``application/…`` and audio that is neither WAV nor MP3, sends the URL of
a file as its data, files without the name that the API requires, and audio with a prefix that the API does not know.
Source: agent-framework-openai 1.19; openai-python 3.52, `types/responses/response_input_file_param.py` and
`response_input_audio_param.py`.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Final

from agent_framework import Content

from durable_agent_host.errors import RequestError
from durable_agent_host.providers.services import Service

_KIND: Final = "openai_content_type"
_AUDIO_FORMATS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("audio/wav", "audio/x-wav", "audio/wave", "audio/vnd.wave"), "wav"),
    **dict.fromkeys(("audio/mp3", "audio/mpeg"), "mp3"),
}


def check_audio(contents: Iterable[Content]) -> None:
    """Reject audio that the API does not accept, before the model is called.

    Raises:
        RequestError: there is audio by URL, or in a format other than WAV and MP3.
    """
    for content in contents:
        if is_audio(content) and _audio_format(content) is None:
            if content.type != "data":
                raise RequestError("the model's service does not accept audio by URL or id: send its bytes")
            raise RequestError(
                f"the model's service accepts audio as WAV or MP3, not {content.media_type!r}: convert it"
            )


def check_chat(contents: Iterable[Content]) -> None:
    """Reject files that the framework's client for Chat Completions would omit.

    Raises:
        RequestError: there is a file that is not sent; the message lists what is.
    """
    for content in contents:
        kind = (content.media_type or "").partition("/")[0]
        is_bytes = content.type == "data" and (kind == "application" or _audio_format(content) is not None)
        is_picture = content.type in {"data", "uri"} and kind == "image"
        if content.type in {"data", "uri", "hosted_file"} and not is_bytes and not is_picture:
            raise RequestError(
                f"the agent's client sends images, and bytes of WAV, MP3 and application/… files; this is "
                f"{content.media_type!r} as {content.type!r}: send another format, or use OpenAIChatClient"
            )


def accepts_file(content: Content, service: Service) -> bool:
    """Return whether a service takes a file in a user's message: bytes, or a picture by its URL."""
    is_image = (content.media_type or "").startswith("image/")
    is_readable = content.type == "data" or (content.type == "uri" and is_image)
    return is_readable and service.accepts_type(content.media_type)


def audio_part(content: Content) -> dict[str, Any] | None:
    """Write audio as the API accepts it.

    Returns:
        The part, or None when the content is not audio. Audio of another service or a tool that the API does not accept
        becomes a text placeholder.
    """
    if not is_audio(content):
        return None
    if (audio_format := _audio_format(content)) is None:
        placeholder = f"[{content.media_type} {content.name or 'without a name'}, which cannot be played here]"
        return {"type": "input_text", "text": placeholder}
    return {
        "type": "input_audio",
        "input_audio": {"data": (content.uri or "").partition(",")[2], "format": audio_format},
    }


def is_audio(content: Content) -> bool:
    return content.type in {"data", "uri", "hosted_file"} and (content.media_type or "").startswith("audio/")


def _audio_format(content: Content) -> str | None:
    return _AUDIO_FORMATS.get(content.media_type or "") if content.type == "data" else None


def as_input_file(content: Content) -> Content:
    """Mark other media than images and audio as a file with a name, which the framework's client then sends.

    Returns:
        A copy, or the same content when there is nothing to mark.
    """
    if content.type not in {"data", "uri"} or (content.media_type or "").startswith("image/"):
        return content
    file = copy.copy(with_file_name(content))
    file.additional_properties = {_KIND: "input_file", **content.additional_properties}
    return file


def with_file_name(content: Content) -> Content:
    """Give the bytes of a file a name, which the APIs require.

    Returns:
        A copy, or the same content when it has a name or is none.
    """
    is_file = content.type == "data" and not (content.media_type or "").startswith(("image/", "audio/"))
    if not is_file or content.name or content.additional_properties.get("filename"):
        return content
    file = copy.copy(content)
    file.name = "file." + (content.media_type or "").rpartition("/")[2].partition("+")[0].rpartition(".")[2]
    return file
