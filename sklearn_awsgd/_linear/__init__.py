"""The linear models: AWSGDClassifier and AWSGDRegressor.

Each phase says which benchmark its constants were chosen on. Those of softmax
regression were chosen on the sets that ``benchmarks/bench_softmax.py`` names, those of
the first phase and of the curvature on the sets in SEEN of
``benchmarks/bench_time_to_optimum.py``, unless they say otherwise. Limits of memory and
of arithmetic are no matter of choice.
"""
