"""Console, files, reproducibility and HTML; nothing of molecules."""
