"""What is left after kill -9, power loss and a full disk (spec 1.3)."""
