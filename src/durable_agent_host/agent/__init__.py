"""One attempt of a turn: the only place that calls a model or a tool. Knows no Functions SDK."""
