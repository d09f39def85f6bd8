"""Archives: Spark copies events of the log into Parquet files."""
