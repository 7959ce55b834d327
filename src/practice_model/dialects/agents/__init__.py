"""The Azure AI Agents service's objects: threads, messages, runs, steps and the events of runs."""
