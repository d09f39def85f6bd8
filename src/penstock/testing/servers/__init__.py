"""Servers that tests and `penstock demo --chaos` start for themselves, and remove without a trace."""
