cdef class User:
    cdef public bytes name
    cdef public bint enabled
    cdef public bint nopass
    cdef public bint sanitize_payload
    cdef public dict passwords
    cdef public list selectors
    cdef public bint unrestricted
    cdef public Py_ssize_t booked
