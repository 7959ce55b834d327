"""The HTTP routes of each API that the practice model speaks, one module each; `server.SERVICES` lists them."""
