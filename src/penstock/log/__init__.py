"""The API of a log: open it, append, read, claim, settle, operate."""
