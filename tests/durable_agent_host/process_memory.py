"""The memory of a host's process, as the kernel counts it."""

import re
from pathlib import Path

from tests.kit import AgentHost


def read_memory_bytes(host: AgentHost, *, is_peak: bool = False) -> int:
    """Return the resident memory of a host now, or at its peak."""
    status = Path(f"/proc/{host.process.pid}/status").read_text()
    return int(re.search(rf"{'VmHWM' if is_peak else 'VmRSS'}:\s+(\d+) kB", status)[1]) * 1024
