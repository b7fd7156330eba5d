"""The matrix factorization: AWSGDMatrixFactorization."""
