"""The training loop: the only place that knows Lightning."""
