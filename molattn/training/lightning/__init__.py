"""The training loop; the only package that imports Lightning."""
