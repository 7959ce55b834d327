"""The HTTP contract: a table of routes, parsing, answers, problems."""
