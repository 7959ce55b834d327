"""The layers of model calls and tool calls: one feature of a call in each module. No layer imports another."""
