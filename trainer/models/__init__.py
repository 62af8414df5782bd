"""Models that score query groups."""
