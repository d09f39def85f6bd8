"""The verbs of an import: begin it, store a batch of it, and settle what was finished in the source."""
