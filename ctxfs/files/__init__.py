"""How each kind of file is read and written: the functions that the table in ``ctxfs.table`` names."""
