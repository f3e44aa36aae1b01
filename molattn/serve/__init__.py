"""Predictions over HTTP, for programs and for a page in the browser: ``molattn serve``."""
