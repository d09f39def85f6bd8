"""Variants of long tests that only `./run prove` runs.

Of a test that runs on two stores, or cuts before and after a statement, the short run takes some, so that each store
and each side is met; `./run prove` takes all of them.
"""

from __future__ import annotations

from typing import Final

THINNED: Final = {
    "tests/cli/test_chaos.py": ("test_nothing_is_lost_on_a_postgresql_of_its_own",),
    "tests/cli/test_demo.py": (
        "test_a_document_says_which_check_failed",
        "test_one_document_on_either_store[sqlite]",
    ),
    "tests/connect/test_ingest_kafka.py": (
        "test_an_ingester_killed_at_any_step_loses_nothing_and_stores_nothing_twice[sqlite]",
        "test_database_connections_cut_at_any_statement_lose_nothing[after]",
        "test_partitions_are_shared_by_live_ingesters_and_none_is_read_twice[sqlite]",
        "test_whoever_is_overtaken_goes_on_where_the_log_is[sqlite]",
    ),
    "tests/connect/test_ingest_valkey.py": (
        "test_an_ingester_killed_at_any_step_loses_nothing_and_stores_nothing_twice[postgresql-after]",
        "test_an_ingester_killed_at_any_step_loses_nothing_and_stores_nothing_twice[sqlite-before]",
        "test_database_connections_cut_at_any_statement_lose_nothing[before]",
    ),
    "tests/engine/test_crash.py": (
        "test_an_engine_killed_at_any_statement_loses_nothing[postgresql-before]",
        "test_an_engine_killed_at_any_statement_loses_nothing[sqlite-after]",
    ),
    "tests/engine/test_faults.py": (
        "test_effects_of_neighbours_happen_exactly_once[postgresql-None]",
        "test_effects_of_neighbours_happen_exactly_once[sqlite-key]",
    ),
    "tests/engine/test_loop.py": ("test_order_by_key_holds_with_failures_deaths_and_two_engines[sqlite-continue]",),
    "tests/engine/test_outages.py": (
        "test_a_connection_cut_at_any_statement_loses_nothing[before]",
        "test_connections_cut_at_every_second_commit_lose_nothing[after]",
    ),
    "tests/examples/test_examples.py": ("test_fraud_scores_once_and_alerts[sqlite]",),
    "tests/http/test_identities.py": ("test_every_route_for_every_identity[sqlite]",),
    "tests/http/test_problems.py": ("test_hostile_bodies_are_stored_or_refused_on_every_route[sqlite]",),
    "tests/imports/test_interruptions.py": (
        "test_two_hundred_thousand_rows_with_flat_memory_and_a_kill_in_the_middle",
    ),
    "tests/jobs/test_outages.py": ("test_a_connection_cut_at_any_statement_loses_and_repeats_no_job[before]",),
    "tests/jobs/test_pool.py": ("test_killed_and_frozen_processes_lose_and_double_nothing[sqlite]",),
    "tests/spark/test_handlers.py": (
        "test_effects_of_neighbours_happen_exactly_once[postgresql-key]",
        "test_effects_of_neighbours_happen_exactly_once[sqlite-None]",
        "test_every_fault_ends_dead_and_all_others_published[sqlite]",
    ),
    "tests/spark/test_jobs.py": ("test_an_app_runs_its_jobs_on_spark[sqlite]",),
    "tests/spark/test_sinks.py": ("test_a_killed_driver_leaves_every_row_once[stream-after-settled]",),
    "tests/spark/test_windows.py": ("test_sliding_windows_are_exact",),
}
