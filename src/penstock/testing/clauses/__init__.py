"""The clauses of the pages that Penstock implements, each with a check that runs against a scratch log."""
