"""The Azure AI Agents service's forms: threads, messages, runs, steps and the events of runs."""
