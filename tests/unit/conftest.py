"""Property tests of this layer: no example is judged by how long it takes."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
