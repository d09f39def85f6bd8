"""Archives: copies of events in Parquet files, and what is done with them without Spark."""
