"""Where handlers run: in the engine's own process, or supervised in a child."""
