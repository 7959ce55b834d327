"""The HTTP contract: route table, parsing, answers, problems."""
