"""The log in PostgreSQL 14 or newer, through psycopg 3."""
