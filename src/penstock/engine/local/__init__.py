"""The local engine: in this process, or in a pool of processes."""
