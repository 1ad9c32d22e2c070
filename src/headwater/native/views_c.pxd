# The functions of views.py in C, with the rule of memory_c.pxd: a wrong argument raises an exception and never
# accesses a byte outside a buffer. The view must have items of one byte, without gaps.
from cpython cimport array
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_Check, PyMemoryView_GET_BUFFER
from libc.string cimport memcpy
from headwater.native.memory_c cimport _room, beyond, u32, u64


cdef extern from *:
    """
    static inline unsigned long long headwater_read_little(const unsigned char *from, int count) {
        unsigned long long value = 0;
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        memcpy(&value, from, count);
    #else
        for (int at = 0; at < count; at++) value |= (unsigned long long)from[at] << (8 * at);
    #endif
        return value;
    }
    """
    u64 _read_little "headwater_read_little"(const unsigned char *source, int count) noexcept


cdef inline const unsigned char *_part(source, Py_ssize_t at, Py_ssize_t count) except NULL:
    if not PyMemoryView_Check(source):
        raise TypeError("not a memoryview")
    view = PyMemoryView_GET_BUFFER(source)
    if not (0 <= at and 0 <= count and at <= view.len - count):
        beyond(b"beyond the view")
    return <const unsigned char *>view.buf + at


cdef inline unsigned char view_u8(source, Py_ssize_t at) except? 0:
    return _part(source, at, 1)[0]


cdef inline u32 view_u32(source, Py_ssize_t at) except? 0:
    return <u32>_read_little(_part(source, at, 4), 4)


cdef inline u64 view_u64(source, Py_ssize_t at) except? 0:
    return _read_little(_part(source, at, 8), 8)


cdef inline long long view_i64(source, Py_ssize_t at) except? 0:
    return <long long>_read_little(_part(source, at, 8), 8)


cdef inline bytes cut_view(source, Py_ssize_t start, Py_ssize_t end):
    return PyBytes_FromStringAndSize(<const char *>_part(source, start, end - start), end - start)


cdef inline int append_view(
    bytearray target, source, Py_ssize_t start, Py_ssize_t end
) except -1:
    cdef const unsigned char *part = _part(source, start, end - start)
    memcpy(_room(target, end - start), part, end - start)
    return 0


cdef inline array.array view_words(
    array.array like, source, Py_ssize_t at, Py_ssize_t count
):
    cdef const unsigned char *part
    cdef array.array found
    cdef u64 *words
    cdef Py_ssize_t number
    if not 0 <= count <= (1 << 60):
        beyond(b"beyond the view")
    part = _part(source, at, 8 * count)
    found = array.clone(like, count, False)
    words = <u64 *>found.data.as_voidptr
    for number in range(count):
        words[number] = _read_little(part + 8 * number, 8)
    return found
