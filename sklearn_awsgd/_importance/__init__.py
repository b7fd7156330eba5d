"""Importance sampling of integrals: MinVarianceImportanceEstimator.

Constants were set while looking at two sets of pools, and the modules say at which, as
far as that is known: by the benchmark of the day when they came.

- Those of ``benchmarks/bench_importance.py`` that are not called unseen there, namely
  cover_2v4, w8a, mnist and the block matrix.
- Those of ``benchmarks/bench_importance_peers.py`` with other seeds: the same ones,
  mammography, a9a, and generated pools that mislead.
"""
