"""The data source `penstock`: read, write and stream the log from Spark."""
