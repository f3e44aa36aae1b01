"""Tests of whether the scores of a method are faithful to the model."""
