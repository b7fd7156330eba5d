"""Phases of training: each takes a task, a budget and a log, and knows no estimator."""
