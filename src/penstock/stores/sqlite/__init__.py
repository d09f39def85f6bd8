"""The log in one SQLite file, through the interpreter's own `sqlite3`."""
