"""The description of the wheel: README.md, with links that lead somewhere from PyPI, too."""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

REPOSITORY = "https://github.com/durable-agent-host/durable-agent-host"


class ReadmeHook(MetadataHookInterface):
    """Makes the links of the README absolute."""

    def update(self, metadata: dict) -> None:
        """Add the description to the project's metadata."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = re.sub(r"(!\[[^\]]*\]\()(?!https?:)", rf"\1{REPOSITORY}/raw/main/", text)
        text = re.sub(r"(?<!!)(\[[^\]]*\]\()(?!https?:|#)", rf"\1{REPOSITORY}/blob/main/", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
