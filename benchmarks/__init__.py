"""Figures: what must be reached, measured as ratios within one run on one machine."""
