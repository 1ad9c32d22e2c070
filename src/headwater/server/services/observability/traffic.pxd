cdef class Traffic:
    cdef public dict listeners
    cdef public str supervised
    cdef public long long connections_before
    cdef public long long received_bytes
    cdef public long long sent_bytes
    cdef public long long reads
    cdef public long long writes
    cdef public long long rejected_connections
    cdef public long long input_limit_disconnections
    cdef public long long output_limit_disconnections
    cdef public long long commands_per_second
    cdef public long long turns_before
    cdef public long long samples
    cdef public long long cpu_ns_before
    cdef public long long cycles_per_second
    cdef public long long cpu_ns_a_cycle
    cdef public double received_bytes_per_second
    cdef public double sent_bytes_per_second
    cdef public object _last
