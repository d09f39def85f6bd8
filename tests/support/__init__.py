"""What tests share.

- Fixtures: `logs` (a log on either store), `notes`, `spark_session`; `tests/conftest.py` makes them known to all tests.
- Servers and processes: `postgres_server`, `pgbouncer`, `cutting_proxy`, `running`, `forks`, `children/`.
- Declare and run: `declarations`, `local_engine`, `spark_engine`, `spark_pipeline`, `spark_query`.
- Steps and looks on a log: `log_steps`, `done_table`, `raw_sql`, `query_plans`, `waiting`.
- Checks that a quick test and a long one in `tests/prove` share: `chaos`, `driver_kill`, `faults`, `hostile_writers`,
  `scripted_events`, `store_against_model`, `true_stats`.
"""
