"""Call handlers: with one event or many, a context and keyed state."""
