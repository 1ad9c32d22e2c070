cdef class ReplyWriter:
    cdef public bytearray out
    cdef public int resp
