"""Console, files, devices, processes and HTML; nothing of molecules."""
