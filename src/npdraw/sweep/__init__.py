"""Sweeps: every combination of some settings, trained, scored and put into one table (docs/sweeps.md)."""
