"""Which messages of the session and the turn the model gets, by the strategies of an agent."""
