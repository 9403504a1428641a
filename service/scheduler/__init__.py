"""Admission, fairness between callers, the cost model, the job queue and placement."""
