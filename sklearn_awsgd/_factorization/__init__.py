"""The matrix factorization: AWSGDMatrixFactorization.

Constants of the draws were chosen on the sets that
``benchmarks/bench_factorization.py`` names, those of the exact end on the sets of
``benchmarks/bench_ratings.py``, unless they say otherwise.
"""
