"""`penstock top`: what happens on a log now, live in a terminal."""
