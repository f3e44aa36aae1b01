"""Whether the scores of a method can be trusted."""
