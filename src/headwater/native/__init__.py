"""Access to bytes and words by address: in C where it is compiled, the same in Python where it is not.

Nothing else in the project touches memory by address. memory.py has words and offsets in arrays, packing.py packed ids,
views.py parts of requests; the ``*_c.pxd`` have the same functions in C.
"""
