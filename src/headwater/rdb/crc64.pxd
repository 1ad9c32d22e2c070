cimport cython


@cython.locals(table="unsigned long long[::1]", crc="unsigned long long", byte="unsigned char")
cpdef object crc64(bytes data)
