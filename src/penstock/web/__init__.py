"""The dashboard: pages over the log, for `penstock serve` and for other ASGI applications."""
