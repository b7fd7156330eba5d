"""Importance sampling of integrals: MinVarianceImportanceEstimator."""
