"""The output folder of ``molattn explain``."""
