"""Streams: the past as a quadratic, the chunk and a memory of past rows exact."""
