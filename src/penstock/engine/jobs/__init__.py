"""Run jobs: a process for every type, in which several jobs run at once."""
