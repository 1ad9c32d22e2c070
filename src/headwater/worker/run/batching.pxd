from headwater.worker.run.handling cimport Handling

cdef class BatchHandling(Handling):
    pass
