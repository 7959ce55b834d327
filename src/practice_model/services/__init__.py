"""The HTTP routes of each API that the practice model implements, one module each."""
