cdef class Results:
    cdef object _into
    cdef object _name
    cdef object _class
    cdef bint _whole
    cpdef additions(self, result)
    cdef _addition(self, into, one)
