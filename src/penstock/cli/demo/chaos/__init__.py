"""`penstock demo --chaos`: a shop goes on selling while its workers and its database are killed; then the proof."""
