"""Access to bytes and words by address: in C if compiled, otherwise with equivalents in Python.

Nothing else in the project touches memory by address. memory.py has words and offsets in arrays, packing.py packed ids,
views.py parts of requests; the files ``*_c.pxd`` have the same functions in C.
"""
