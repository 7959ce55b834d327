"""A hook of mkdocs: links from a page to files outside of docs/ lead to the repository."""

import posixpath
import re
from typing import Any

LINK = re.compile(r"\]\(((?:\.\./)+[^)#]+)(#[^)]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Give the page's text with such links replaced."""
    folder = posixpath.dirname("docs/" + page.file.src_uri)

    def link_to(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, match[1]))
        return match[0] if path.startswith("docs/") else f"]({config.repo_url}/blob/main/{path}{match[2] or ''})"

    return LINK.sub(link_to, markdown)
