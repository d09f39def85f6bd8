#!/bin/sh
# Run the pipeline on the log that PENSTOCK_URL names. What it keeps from run to run (checkpoints, catalog, tables) is in
# `state`, beside this file. Further arguments go to spark-pipelines.
set -eu
cd "$(dirname "$0")"
mkdir -p state
sed "s|^storage:.*|storage: file://$PWD/state/storage|" spark-pipeline.yml > spark-pipeline.local.yml
cd state
exec spark-pipelines --conf spark.sql.catalogImplementation=hive "$@" run --spec ../spark-pipeline.local.yml
