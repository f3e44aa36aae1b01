"""The explanation methods, a file each."""
