"""Claim, handle, settle: the loop between the log and the user's handlers."""
