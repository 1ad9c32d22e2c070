"""Access to bytes and words by address: in C if compiled, otherwise with equivalents in Python.

memory.py has bytes, words and offsets; packing.py has packed ids and rows; views.py has values in memoryviews.
The files ``*_c.pxd`` have the same functions in C. Elsewhere, only other files ``*_c.pxd`` use addresses.
"""
