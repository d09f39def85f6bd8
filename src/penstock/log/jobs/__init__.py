"""The verbs of jobs: submit, claim, heartbeat, finish, look, cancel."""
