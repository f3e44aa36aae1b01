"""From a table and options to a trained model."""
