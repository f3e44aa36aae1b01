"""Metrics, baselines, plots, cross-validation and the report of a run.

Public names are those below and :func:`molattn.evaluation.cross_validation.cross_validate`.
"""

from molattn.evaluation.scores.metrics import METRICS as METRICS
from molattn.evaluation.scores.metrics import Metric as Metric
from molattn.evaluation.scores.metrics import TaskScores as TaskScores
from molattn.evaluation.scores.metrics import score_tasks as score_tasks
