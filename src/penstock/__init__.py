"""Penstock: a durable event log in your own database in which every message has a lifecycle."""
