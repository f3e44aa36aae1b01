"""The report of a run: tables, plots, its page and its model card."""
