"""What the configuration says of agents (spec 3.6, 4.6). Pure."""

from typing import NamedTuple


class Settings(NamedTuple):
    """From the configuration: HOME, PATH and LANG of agents; seconds of wall time (0: no end), bytes of output."""

    home: str = "/"
    path: str = "/usr/local/bin:/usr/bin:/bin"
    lang: str = "C.UTF-8"
    wall_s: int = 3600
    output_bytes: int = 64 << 20
