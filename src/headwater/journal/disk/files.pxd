cdef class DiskFiles:
    cdef object __weakref__
    cdef public object directory
    cdef object _clock
    cdef object _log
    cdef object _pid
    cdef public object _lock
    cdef object _names
    cdef object _image_lock
    cdef public dict _open
    cdef dict _open_to_read
    cdef public object reads

    cdef int _descriptor(self, str name) except -1
    cdef int _read_descriptor(self, str name) except -1
    cdef _refuse_after_fork(self)
    cpdef _forget(self)
