"""Models of other kinds, small and plain, that NP-DRAW is measured beside."""
