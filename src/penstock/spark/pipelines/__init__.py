"""Pipelines: DataFrame functions over batches of a group."""
