"""The archive: events of a stream as Parquet files, with a manifest."""
