"""`penstock demo`: a shop's orders, three groups, everything that goes wrong with them, and the proof."""
