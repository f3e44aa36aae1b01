"""The folder that ``molattn explain`` writes."""
