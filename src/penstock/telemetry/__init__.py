"""Metrics, traces and structured logs of every transition."""
