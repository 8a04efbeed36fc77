"""ctxfs's tests, by layer."""
