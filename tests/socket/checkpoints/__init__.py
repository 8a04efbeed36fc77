"""The checkpoint daemon as its clients see it, on every back end (spec 6.3, 6.4, 6.5)."""
