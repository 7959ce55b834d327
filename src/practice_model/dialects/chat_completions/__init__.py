"""The Chat Completions API: its messages as items of the Responses API and back, and its stream."""
