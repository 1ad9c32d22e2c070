cdef long long _OVERHEAD


cdef class Reserve:
    cdef public object refusal
    cdef object _files
    cdef object _catalog
    cdef long long _small
    cdef long long _file_bytes
    cdef unsigned int _seed
    cdef list _ready
    cdef long long _wanted
    cdef object _broken
    cdef long long _lacking
    cdef long long _refused
    cdef long long _before

    cpdef long long room(self) except? -1
    cpdef prepare(self, long long number)
