"""Fits on rows that lie in partitions, wherever these are."""
