cimport cython
from headwater.native.memory_c cimport u32
from headwater.journal.format.checksum_c cimport place_mask


@cython.locals(crc=u32)
cpdef u32 _checksum(bytes data, unsigned long long offset, u32 key, u32 seed) except? 0
@cython.locals(offset="unsigned long long", head_size=Py_ssize_t, body_size=Py_ssize_t)
cpdef bytes check_body(bytes data, place, u32 seed)
@cython.locals(size=Py_ssize_t, part=bytes, checksum=u32, at=Py_ssize_t, found=u32)
cdef bytes _verify(bytes data, unsigned long long offset, u32 key, u32 seed)
