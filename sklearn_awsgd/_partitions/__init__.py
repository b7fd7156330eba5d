"""Fits on rows that lie in partitions, wherever these are.

Constants were chosen on the sets that ``linear.py`` names and on those of
``benchmarks/bench_dask.py``.
"""
