"""Foreign transcripts as lines of a session (spec 4.2, import): one module per format, pure, one pass, bounded memory.

A format has ``identify(file, stem)`` and ``convert(file, scope)``. Converting the same file twice gives the same lines,
so an import can be repeated; a file that has grown gives the old lines first.
"""
