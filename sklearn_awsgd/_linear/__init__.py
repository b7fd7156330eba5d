"""The linear models: AWSGDClassifier and AWSGDRegressor."""
