"""How long events stay: the policies of streams, and their application."""
