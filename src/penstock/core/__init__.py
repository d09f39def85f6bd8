"""The rules of Penstock, pure: no SQL, no I/O, no clock, no randomness."""
