"""The HTML reports of a run and of a cross-validation; each is one file without dependencies."""

from molattn.evaluation.report.folds import write_fold_page as write_fold_page
from molattn.evaluation.report.run import write_run_page as write_run_page
