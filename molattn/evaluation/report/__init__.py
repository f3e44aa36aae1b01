"""A run as one page to read: HTML that needs nothing beside itself."""

from molattn.evaluation.report.folds import write_fold_page as write_fold_page
from molattn.evaluation.report.run import write_run_page as write_run_page
from molattn.evaluation.score_names import HEADINGS as HEADINGS
from molattn.evaluation.score_names import MODELS as MODELS
