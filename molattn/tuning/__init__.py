"""Search for options: ``molattn tune``."""
