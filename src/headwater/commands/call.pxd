# Attributes as C fields; their values are the plain source's own.


cdef class StreamSettings:
    cdef public object node_max_bytes
    cdef public object node_max_entries
    cdef public object autoclaim_scan_factor
    cdef public object dump_format
    cdef public object idmp_duration_s
    cdef public object idmp_maxsize


cdef class Call:
    cdef public object keyspace
    cdef public object db
    cdef public object arguments
    cdef public object now_ms
    cdef public object reply
    cdef public object may_block
    cdef public object admission
    cdef public object settings
    cdef public object draw
    cdef public object touches
