"""Streams: the past as a quadratic, the chunk and a memory of past rows exact.

Constants were chosen on the streams of ``benchmarks/bench_streams.py`` that are not
called unseen there, unless they say otherwise.
"""
