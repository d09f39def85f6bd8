"""Ingest: read other systems' streams into the log."""
