"""Streaming queries that an app declares: started, restarted and stopped with it."""
