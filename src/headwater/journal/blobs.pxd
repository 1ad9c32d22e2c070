cimport cython
from headwater.journal.checksum_c cimport place_mask


cpdef _checksum(bytes data, unsigned long long offset, key, seed)
@cython.locals(offset="unsigned long long", head_size=Py_ssize_t, body_size=Py_ssize_t)
cpdef bytes check_body(bytes data, place, seed)
@cython.locals(part=bytes)
cdef bytes _verify(bytes data, unsigned long long offset, key, seed)
