"""Policies over trajectories: AWSGDPolicyGradient.

``benchmarks/bench_policy.py`` says on which grids the constants were chosen.
"""
