cimport cython
from cpython cimport array
from headwater.engine.entries.entry_block cimport EntryBlock
from headwater.engine.facts.facts cimport FactBuffer
from headwater.engine.groups.pending_block cimport PendingBlock
from headwater.native.memory_c cimport put_u8, put_u32, put_u64, put_words
from headwater.native.packing_c cimport pack_ids, pack_rows


@cython.final
cdef class ImageFacts:
    cdef public FactBuffer facts

    cpdef image_begun(self, long long next_sid, long long next_gid)
    cpdef image_ended(self)
    cpdef key_numbers(self, int db, Py_ssize_t first, unsigned long long next_number, array.array numbers)
    cpdef raw_block(self, Py_ssize_t sid, Py_ssize_t number, EntryBlock block)
    cpdef sealed_block(
        self, Py_ssize_t sid, Py_ssize_t number, EntryBlock block, str codec, bytes wire,
        Py_ssize_t size,
    )
    cpdef stored_block(self, Py_ssize_t sid, Py_ssize_t number, EntryBlock block)
    cpdef shared_block(self, Py_ssize_t sid, Py_ssize_t number)
    @cython.locals(data=bytearray, block=PendingBlock)
    cpdef pending(self, Py_ssize_t gid, list blocks)
    cpdef big_counts(self, Py_ssize_t gid, array.array words)
    cpdef order(self, Py_ssize_t gid, array.array times, array.array ids, array.array counts)
    cpdef unowned(self, Py_ssize_t gid, array.array words)
    cpdef delays(self, Py_ssize_t gid, array.array words)
    cdef _begin(self, int kind, Py_ssize_t number)
    cdef _block(
        self, int kind, Py_ssize_t sid, Py_ssize_t number, EntryBlock block, Py_ssize_t entries,
        bytes ids,
    )
    cdef _text(self, text)
    cdef _counted(self, array.array words, Py_ssize_t each)
