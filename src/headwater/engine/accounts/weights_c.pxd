# The functions of weights.py in C.
from cpython cimport array
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from headwater.native.memory_c cimport beyond, u64
from libc.string cimport memcmp


cdef inline Py_ssize_t integer_bytes(long long value) noexcept:
    if 0 <= value <= 127:
        return 2
    if -4096 <= value <= 4095:
        return 3
    if -32768 <= value <= 32767:
        return 4
    if -8388608 <= value <= 8388607:
        return 5
    return 6 if -2147483648 <= value <= 2147483647 else 10


cdef inline Py_ssize_t _with_backlen(Py_ssize_t size) noexcept:
    if size < 128:
        return size + 1
    if size < 16383:
        return size + 2
    if size < 2097151:
        return size + 3
    return size + 4 if size < 268435455 else size + 5


cdef inline Py_ssize_t _integer_bytes(const char *text, Py_ssize_t length) noexcept:
    # Returns the size of the integer that 1 to 20 bytes represent; 0 if they are not a 64-bit integer.
    cdef Py_ssize_t at = text[0] == 45
    cdef u64 value = 0, most = <u64>1 << 63
    if text[at] == 48:
        return 2 if length == 1 else 0
    if length - at > 19 or length == at:
        return 0
    while at < length:
        if not 48 <= text[at] <= 57:
            return 0
        value = value * 10 + <u64>(text[at] - 48)
        at += 1
    if text[0] == 45:
        return integer_bytes(<long long>(0 - value)) if value <= most else 0
    return integer_bytes(<long long>value) if value < most else 0


cdef inline Py_ssize_t _element_bytes(const char *text, Py_ssize_t length) noexcept:
    cdef Py_ssize_t size = 0
    if 0 < length <= 20 and 48 <= text[length - 1] <= 57 and text[0] <= 57:
        size = _integer_bytes(text, length)
        if size:
            return size
    if length < 64:
        return _with_backlen(length + 1)
    return _with_backlen(length + 2 if length < 4096 else length + 5)


cdef inline const char *_value_of(
    const char *text, const char *end, Py_ssize_t *length
) except NULL:
    # Returns the start of the value of the bulk string at `text`. The string must end before `end`.
    cdef Py_ssize_t found = 0
    text += 1
    while text < end and 48 <= text[0] <= 57:
        found = found * 10 + (text[0] - 48)
        if found > end - text:
            break
        text += 1
    text += 2
    if found > end - text - 2:
        beyond(b"incomplete bulk string")
    length[0] = found
    return text


cdef inline bint weigh(
    bytearray wire, Py_ssize_t start, Py_ssize_t end, bytes names, array.array found
) except -1:
    cdef const char *at
    cdef const char *stop
    cdef const char *value
    cdef const char *known = PyBytes_AS_STRING(names)
    cdef Py_ssize_t left = PyBytes_GET_SIZE(names), length = 0, size
    cdef u64 content = 0, pairs = 0, names_size = 0, values_size = 0
    cdef u64 *words
    cdef bint same = True
    if not 0 <= start <= end <= PyByteArray_GET_SIZE(wire):
        beyond(b"beyond the buffer")
    if len(found) < 4:
        beyond(b"beyond the words")
    at = PyByteArray_AS_STRING(wire) + start
    stop = PyByteArray_AS_STRING(wire) + end
    while at < stop:
        value = _value_of(at, stop, &length)
        names_size += _element_bytes(value, length)
        content += length
        size = value + length + 2 - at
        if same:
            same = size <= left and memcmp(at, known, size) == 0
            known += size
            left -= size
        value = _value_of(at + size, stop, &length)
        values_size += _element_bytes(value, length)
        content += length
        at = value + length + 2
        pairs += 1
    words = <u64 *>found.data.as_voidptr
    words[0], words[1], words[2], words[3] = content, pairs, names_size, values_size
    return same and left == 0 and pairs > 0


cdef inline int grow(
    array.array words, Py_ssize_t at, u64 ms, u64 seq, array.array found, bint same
) except -1:
    cdef u64 *node
    cdef const u64 *weights
    cdef u64 size, parts
    if not 0 <= at <= len(words) - 7 or len(found) < 4:
        beyond(b"beyond the words")
    node = <u64 *>words.data.as_voidptr + at
    weights = <const u64 *>found.data.as_voidptr
    size = 2 + integer_bytes(<long long>(ms - node[0])) + integer_bytes(<long long>(seq - node[1]))
    size += weights[3]
    parts = 3 + weights[1]
    if not same:
        size += weights[2] + integer_bytes(weights[1])
        parts += weights[1] + 1
    node[2], node[3] = ms, seq
    node[4] += 1
    node[5] += 1
    node[6] += size + integer_bytes(parts)
    return 0
