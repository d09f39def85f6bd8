"""Every limit, in one place."""

from __future__ import annotations

from typing import Final

NAME_LENGTH: Final = 128
PAYLOAD_BYTES: Final = 1024 * 1024
HEADERS_BYTES: Final = 8 * 1024
METADATA_BYTES: Final = 8 * 1024
KEY_BYTES: Final = 512
STATE_BYTES: Final = 1024 * 1024  # one value of a key
ERROR_BYTES: Final = 8 * 1024
TRACEBACK_BYTES: Final = 8 * 1024  # of one kind of error
LABEL_SETS: Final = 1_000  # streams and groups that metrics tell apart; all others are counted together
METRICS_SECONDS: Final = 5.0  # for which metrics of the whole log are good before they are computed again
SPAN_LINKS: Final = 32  # of the span of a lease to the traces of its events …
SPAN_LOOK: Final = 1_000  # … among so many of its events, evenly spread
FAILURE_SPANS: Final = 100  # of one lease
FAILURE_LINES: Final = 3  # in the log of an engine, of one kind of error …
FAILURE_LINES_SECONDS: Final = 60.0  # … in this time

BATCH: Final = 50_000  # events in one lease, at most
PIPELINE_BATCH: Final = 200_000  # events in one lease of a pipeline
PIPELINE_JOBS: Final = 256  # Spark jobs for one lease of a pipeline, to find what fails in it
PIPELINES_IN_FLIGHT: Final = 2  # batches of one pipeline that run side by side, if nothing else is said …
IN_FLIGHT: Final = 64  # … and at most
LINGER_SECONDS: Final = 3_600.0  # at most, for events that gather to a batch
REFUSAL_TRIES: Final = 2_000  # of staged rows in the database, to find those of a lease that it refuses
PARTITION_EVENTS: Final = 50_000  # events in one partition of a batch read …
PARTITION_BYTES: Final = 32 * 1024 * 1024  # … and about as many bytes of payloads
STATEMENT_BYTES: Final = 16 * 1024 * 1024  # that one statement of a batch read brings, about
INGEST_BATCH: Final = 5_000  # entries of a source in one transaction, at most
INGEST_BATCH_BYTES: Final = 16 * 1024 * 1024  # about as many bytes of them
INGEST_RANGE_MS: Final = 600_000  # of the entry ids that one remembered range covers
INGEST_FORGET_SECONDS: Final = 60.0  # between two rounds that forget entries …
INGEST_FORGET: Final = 1_000  # … and ranges in one of them
INGEST_SETTLED_SECONDS: Final = 3_600.0  # after which the source is asked whether entries of ours are still pending
REMEMBER_DAYS: Final = 7.0  # after its acknowledgement an entry that comes again is recognised …
REMEMBER_DAYS_MOST: Final = 3_660.0  # … or so long, if asked for
MIN_IDLE_SECONDS: Final = 60.0  # a pending entry is taken over after this time
REJECTED_BYTES: Final = 700 * 1024  # of an entry that are kept when ingest or an import rejects it
APPEND_BATCH: Final = 100_000  # events in one append_many
ROWS_PER_LEASE: Final = 2_000  # exception rows in one lease
ROWS_LEAST: Final = 64  # exception rows that an ordered lane may always take, even if its last lease finished few
ROWS_WAIT_SECONDS: Final = 1.0  # how long due rows too few to fill a lease wait while ranges are claimed
HELD_PER_LEASE: Final = 300  # events waiting for an earlier one of their key before an engine releases the rest
HOLES_PER_LEASE: Final = 1_000  # events that a range may leave out; with more it ends earlier
SCAN: Final = 50_000  # events that one claim examines (or twice its limit)
SCAN_FILTERED: Final = 10_000  # the same where each event is checked against a filter
READ_WITH_CLAIM: Final = 500  # events that a claim reads in its own transaction
PASS_STRETCH: Final = 1_000  # a range without matches this long is skipped with a lease without members
BLOCKED_PER_LANE: Final = 10_000  # blocked rows that stop a lane's cursor
SUSPECT_PIECES: Final = 16  # an expired range comes back in this many pieces

BUCKETS: Final = 256
LANES: Final = 256
LANES_DEFAULT: Final = 8

TALLY_EVERY: Final = 10_000  # offsets between two marks at which the log is counted
TALLY_GROWTH: Final = 10_000  # events by which a stream must grow before its counts at a mark are kept
PRUNE_BATCH: Final = 10_000  # events, or leases, that prune removes in one transaction
RETENTION_BATCH: Final = 2_000  # finished jobs that are removed in one transaction …
RETENTION_STEPS: Final = 25  # … and transactions in one round
RESULT_SECONDS: Final = 10.0  # a finished job stays at least this long, so that whoever waits for it sees its result
KEEP_SECONDS_MOST: Final = 100 * 366 * 86_400.0  # how long finished jobs may be kept, unless for ever

FIRST_LEASE: Final = 64  # events in the first lease of a worker that does not know its handlers yet
BATCH_SECONDS: Final = 2.0
OVERTIME: Final = 1.5  # times batch_seconds after which a worker settles what is finished and releases the rest
TIMEOUT_SECONDS: Final = 30.0
PUBLISH_SECONDS: Final = 600.0  # of one call of a publisher: its lease is kept that long, however slow the target is
CONCURRENCY: Final = 1_000
PROCESSES: Final = 64  # of one `penstock run`
ON_STOP_SECONDS: Final = 10.0  # for all on_stop hooks of a process, before it is killed
MEMORY_MB: Final = 2_048  # of a handler's process
CIRCUIT_FIRST_SECONDS: Final = 1.0
CIRCUIT_MOST_SECONDS: Final = 60.0
CIRCUIT_ASKED_SECONDS: Final = 3_600.0  # that a target which is down may ask us to wait
CIRCUIT_LOOK_SECONDS: Final = 0.25  # between two looks at another worker's probe
POLL_FIRST_SECONDS: Final = 0.025
POLL_MOST_SECONDS: Final = 0.25
LOOK_FIRST_SECONDS: Final = 0.002  # between two looks of an idle engine at the log, just after something happened
LOOK_MOST_SECONDS: Final = 0.25  # the same when nothing has happened for a while
WAKE_EVERY_SECONDS: Final = 0.005  # a process notifies idle workers at most once in this time
IDLE_CLAIM_SECONDS: Final = 5.0  # an idle worker claims again after this time even without a notification
RUN_BEAT_SECONDS: Final = 3.0  # between two heartbeats of a run
RUN_LOST_SECONDS: Final = 30.0  # a run without a heartbeat for this long counts as lost
RUN_KEPT_DAYS: Final = 30  # after the end of a run, or its last heartbeat; then a prune of any stream removes its row
IDLE_CLAIMS_PER_SECOND: Final = 10  # of one engine: with many groups each waits longer
SOLO_DEATHS: Final = 10  # events in a row that killed their process, without a success, before the group is paused

LEASE_SECONDS: Final = 60.0
LEASE_SECONDS_MOST: Final = 7 * 86_400.0
READER_LEASES: Final = 256  # in one claim of a streaming reader
READER_FIRST_SECONDS: Final = 600.0  # how long a reader's first claim lasts until its query has recorded it
READER_WAIT_SECONDS: Final = 1.0  # how long an idle reader waits for events
STAGED_SECONDS: Final = 86_400.0  # how long staged rows of a Spark task are kept for their write to commit
SETTLE_RETRIES: Final = 5  # serialization failures and deadlocks
BUSY_SECONDS: Final = 30.0
NOTE_SECONDS: Final = 1.0  # between two notes of the horizon for standbys, in one process

METRIC_SECONDS: Final = 15.0  # between two looks of a process whether numbers are to be recorded, once a minute in all
METRIC_LEASES: Final = 50_000  # that one step of a recording counts, about, over all groups …
METRIC_LEASES_LEAST: Final = 500  # … but so many of each …
METRIC_STEPS: Final = 50  # … and steps in one recording
METRIC_UNCOUNTED: Final = 20_000  # leases that nobody has counted yet, and a series still counts by itself
METRIC_MINUTES_DAYS: Final = 2  # numbers are kept by the minute, then …
METRIC_TEN_MINUTES_DAYS: Final = 30  # … by ten minutes, then …
METRIC_DAYS: Final = 400  # … by the hour, and then forgotten
FOLD_STEPS: Final = 100  # transactions in one round that folds old numbers
SERIES_POINTS: Final = 1_500  # of one series …
SERIES_POINTS_DEFAULT: Final = 120  # … and at most if no step is given

OPERATION_BATCH: Final = 10_000  # deliveries that an operation moves in one transaction
OPERATION_LEASE_SECONDS: Final = 30.0  # after which another process goes on with an operation whose runner is gone
OPERATION_LOOK_SECONDS: Final = 1.0  # between two looks at what an operation waits for
PLAN_SECONDS: Final = 600.0  # a plan of an operation is out of date after this time
PLAN_COUNT: Final = 1_000_000  # finished events that a plan of a replay counts, at most
CANARIES: Final = 1_000  # of one operation
RETURNED_COUNT: Final = 10_000  # returns that are counted, at most (or as many as stop the operation)
KINDS_COUNT: Final = 10_000  # dead letters of a kind that are counted
KINDS: Final = 1_000  # of errors of a group that are looked at
NOTE_BYTES: Final = 2_000  # of a note on a kind of error

IMPORT_BATCH: Final = 2_000  # events that an import stores in one transaction …
IMPORT_BYTES: Final = 8 * 1024 * 1024  # … and about as many bytes of payloads
IMPORT_WAIT_SECONDS: Final = 0.25  # between two looks at an open append that an import waits for

RETENTION_LOOK_SECONDS: Final = (10.0, 600.0)  # between two looks at the policy of a stream: a hundredth of `keep`, …
RETENTION_PASS_SECONDS: Final = (60.0, 3_600.0)  # … and at what it left standing: a tenth
POLICY_STEPS: Final = 10  # batches that policies remove in one round
RESTORE_BATCH: Final = 2_000  # archived events that are put back in one transaction …
RESTORE_BYTES: Final = 8 * 1024 * 1024  # … and about as many bytes of payloads
RESTORE_KEEP_DAYS: Final = 7.0  # restored events stay at least this long, if nothing else is said
