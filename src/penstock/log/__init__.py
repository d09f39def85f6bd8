"""What an application calls: open a log, append to it, read it, claim from it, operate it."""
