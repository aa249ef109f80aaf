"""Scores: how good samples are, how likely images are, and where a model loses."""
