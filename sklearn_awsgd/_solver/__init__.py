"""Runs of the one loop of the package: what is spent, recorded and stopped."""
