"""Tests of what only SQLite has: one file, its locks, its write-ahead log."""
