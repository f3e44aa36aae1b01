"""Is the model any good: metrics, baselines, plots, cross-validation and the page of a run."""
