"""The benchmark: what the mount costs beside what it replaces, and the bounds that must hold (docs/performance.md)."""
