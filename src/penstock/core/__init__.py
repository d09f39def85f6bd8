"""The rules of Penstock as pure code: no SQL, no I/O, no clock, no randomness."""
