"""A run as one page to read: HTML that needs nothing beside itself."""

from molattn.page.folds import write_fold_page as write_fold_page
from molattn.page.run import write_run_page as write_run_page
from molattn.page.scores import HEADINGS as HEADINGS
from molattn.page.scores import MODELS as MODELS
