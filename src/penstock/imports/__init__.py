"""Moving in: read another system's events and states, and store them as ours."""
