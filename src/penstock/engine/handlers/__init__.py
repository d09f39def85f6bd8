"""Calling handlers: one event or many, with a context and keyed state."""
