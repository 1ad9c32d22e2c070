# The functions of memory.py in C. They check their arguments too: a wrong argument raises an exception. No byte
# outside a buffer is ever accessed.
from cpython cimport array
from cpython.bytearray cimport (
    PyByteArray_AS_STRING, PyByteArray_CheckExact, PyByteArray_GET_SIZE, PyByteArray_Resize,
)
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from libc.string cimport memchr, memcmp, memcpy, memmove

ctypedef unsigned long long u64
ctypedef unsigned int u32


cdef extern from *:
    """
    /* Extends a bytearray by `more` bytes and returns a pointer to them, or NULL with an error set. Fails if
       a view of the bytearray exists, as PyByteArray_Resize does, but needs no call if the buffer is large
       enough. Otherwise the buffer doubles: a reply of a hundred values grows seven times. */
    #if PY_VERSION_HEX < 0x030F0000 && !defined(Py_LIMITED_API)
    static inline int headwater_fits(PyByteArrayObject *target, Py_ssize_t size) {
        return target->ob_exports == 0
            && size + (target->ob_start - target->ob_bytes) < target->ob_alloc;
    }
    static inline void headwater_set_size(PyByteArrayObject *target, Py_ssize_t size) {
        Py_SET_SIZE(target, size);
        target->ob_start[size] = 0;
    }
    #else
    #define headwater_fits(target, size) 0
    #define headwater_set_size(target, size) ((void)0)
    #endif
    static inline char *headwater_room(PyObject *target, Py_ssize_t more) {
        Py_ssize_t before = PyByteArray_GET_SIZE(target), size = before + more, wanted;
        if (!headwater_fits((PyByteArrayObject *)target, size)) {
            wanted = before + (before < 65536 ? before : 65536);
            if (wanted < 64) wanted = 64;
            if (wanted > size && PyByteArray_Resize(target, wanted) < 0) return NULL;
            if (PyByteArray_Resize(target, size) < 0) return NULL;
        } else {
            headwater_set_size((PyByteArrayObject *)target, size);
        }
        return PyByteArray_AS_STRING(target) + before;
    }
    static inline int headwater_empty(PyObject *target) {
        if (headwater_fits((PyByteArrayObject *)target, 0)) {
            headwater_set_size((PyByteArrayObject *)target, 0);
            return 0;
        }
        return PyByteArray_Resize(target, 0);
    }
    """
    char *_room "headwater_room"(bytearray target, Py_ssize_t more) except NULL
    int _empty "headwater_empty"(bytearray target) except -1


cdef extern from *:
    """
    /* Raises IndexError. Cold, so that it stays out of the instructions of its callers. */
    #if defined(__GNUC__)
    __attribute__((cold, noinline, unused))
    #endif
    static int headwater_beyond(const char *what) {
        PyErr_SetString(PyExc_IndexError, what);
        return -1;
    }
    """
    int beyond "headwater_beyond"(const char *what) except -1


cdef extern from *:
    """
    #if defined(__GNUC__)
    #define headwater_prefetch(address) __builtin_prefetch(address, 1)
    #else
    #define headwater_prefetch(address) ((void)(address))
    #endif
    """
    void _prefetch "headwater_prefetch"(const char *address) noexcept


cdef extern from "Python.h":
    void Py_SET_SIZE(object, Py_ssize_t)


cdef extern from *:
    """
    /* Replaces bytes values[key] by one with `part` at `at`. An object to which only the dictionary refers is resized
       by the allocator, which moves large ones without copying them; a resize also forgets the cached hash. */
    #ifdef Py_GIL_DISABLED
    #define headwater_is_shared(value) 1
    #else
    #define headwater_is_shared(value) (Py_REFCNT(value) != 1)
    #endif
    static inline int headwater_splice(
        PyObject *values, PyObject *key, Py_ssize_t at, PyObject *part, PyObject *nothing
    ) {
        PyObject *value = PyDict_GetItemWithError(values, key);
        Py_ssize_t before, more = PyBytes_GET_SIZE(part), after;
        int done;
        if (value == NULL || !PyBytes_CheckExact(value) || at < 0 || at > PY_SSIZE_T_MAX / 2 - more) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_IndexError, "beyond the value");
            return -1;
        }
        before = PyBytes_GET_SIZE(value);
        after = at + more > before ? at + more : before;
        if (headwater_is_shared(value)) {
            PyObject *made = PyBytes_FromStringAndSize(NULL, after);
            if (made == NULL) return -1;
            memcpy(PyBytes_AS_STRING(made), PyBytes_AS_STRING(value), before);
            value = made;
        } else {
            Py_INCREF(value);
            if (PyDict_SetItem(values, key, nothing) < 0) {
                Py_DECREF(value);
                return -1;
            }
            if (_PyBytes_Resize(&value, after + (after == before)) < 0) return -1;
            if (after == before && _PyBytes_Resize(&value, after) < 0) return -1;
        }
        if (at > before) memset(PyBytes_AS_STRING(value) + before, 0, at - before);
        memcpy(PyBytes_AS_STRING(value) + at, PyBytes_AS_STRING(part), more);
        done = PyDict_SetItem(values, key, value);
        Py_DECREF(value);
        return done;
    }
    """
    int _splice "headwater_splice"(dict values, bytes key, Py_ssize_t at, bytes part, bytes nothing) except -1


cdef inline int splice(dict values, bytes key, Py_ssize_t at, bytes part) except -1:
    return _splice(values, key, at, part, b"")


cdef inline int empty(bytearray target) except -1:
    return _empty(target)


cdef inline int append_bytes(bytearray target, bytes source) except -1:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(source)
    memcpy(_room(target, size), PyBytes_AS_STRING(source), size)
    return 0


cdef inline const char *content(object source, Py_ssize_t *size) except NULL:
    # Returns the bytes of a `memory.Text`, and sets their number.
    if PyByteArray_CheckExact(source):
        size[0] = PyByteArray_GET_SIZE(source)
        return PyByteArray_AS_STRING(source)
    if not PyBytes_CheckExact(source):
        raise TypeError("neither bytes nor a bytearray")
    size[0] = PyBytes_GET_SIZE(source)
    return PyBytes_AS_STRING(source)


cdef inline int append_part(
    bytearray target, object source, Py_ssize_t start, Py_ssize_t end
) except -1:
    cdef Py_ssize_t size
    cdef char *room
    content(source, &size)
    if not 0 <= start <= end <= size:
        beyond(b"beyond the buffer")
    room = _room(target, end - start)  # may move the bytes, if `source` is `target`
    memcpy(room, content(source, &size) + start, end - start)
    return 0


cdef inline int put_bytes(bytearray target, Py_ssize_t at, bytes source) except -1:
    if not 0 <= at <= PyByteArray_GET_SIZE(target) - PyBytes_GET_SIZE(source):
        beyond(b"beyond the target")
    memcpy(PyByteArray_AS_STRING(target) + at, PyBytes_AS_STRING(source), PyBytes_GET_SIZE(source))
    return 0


cdef inline int put_part(
    bytearray target, Py_ssize_t at, bytearray source, Py_ssize_t start, Py_ssize_t end
) except -1:
    if not 0 <= start <= end <= PyByteArray_GET_SIZE(source):
        beyond(b"beyond the buffer")
    if not 0 <= at <= PyByteArray_GET_SIZE(target) - (end - start):
        beyond(b"beyond the target")
    memmove(PyByteArray_AS_STRING(target) + at, PyByteArray_AS_STRING(source) + start, end - start)
    return 0


cdef inline int resize(bytearray target, Py_ssize_t size) except -1:
    PyByteArray_Resize(target, size)
    return 0


cdef inline int reserve(bytearray target, Py_ssize_t size) except -1:
    cdef Py_ssize_t held = PyByteArray_GET_SIZE(target)
    if held > size:
        beyond(b"size below the length")
    PyByteArray_Resize(target, size)
    Py_SET_SIZE(target, held)
    PyByteArray_AS_STRING(target)[held] = 0
    return 0


cdef inline bytes cut(object source, Py_ssize_t start, Py_ssize_t end):
    cdef Py_ssize_t size
    text = content(source, &size)
    if not 0 <= start <= end <= size:
        beyond(b"beyond the buffer")
    return PyBytes_FromStringAndSize(text + start, end - start)


cdef inline bint spells(bytearray source, Py_ssize_t start, Py_ssize_t end, bytes word) except -1:
    cdef Py_ssize_t at
    cdef unsigned char byte
    cdef const unsigned char *here
    if not 0 <= start <= end <= PyByteArray_GET_SIZE(source):
        beyond(b"beyond the buffer")
    if end - start != PyBytes_GET_SIZE(word):
        return False
    here = <const unsigned char *>PyByteArray_AS_STRING(source) + start
    for at in range(end - start):
        byte = here[at]
        if 97 <= byte <= 122:
            byte -= 32
        if byte != <unsigned char>PyBytes_AS_STRING(word)[at]:
            return False
    return True


cdef inline bint is_part(
    bytes value, bytearray source, Py_ssize_t start, Py_ssize_t end
) except -1:
    if not 0 <= start <= end <= PyByteArray_GET_SIZE(source):
        beyond(b"beyond the buffer")
    if end - start != PyBytes_GET_SIZE(value):
        return False
    return memcmp(PyBytes_AS_STRING(value), PyByteArray_AS_STRING(source) + start, end - start) == 0


cdef inline Py_ssize_t scan_bulks(
    bytearray source, Py_ssize_t at, Py_ssize_t end, array.array starts, array.array ends,
    Py_ssize_t first, Py_ssize_t count,
) except -1:
    cdef const char *text
    cdef const char *stop
    cdef const char *begin
    cdef const char *here
    cdef Py_ssize_t length
    cdef u64 *start_at
    cdef u64 *end_at
    if not 0 <= at <= end <= PyByteArray_GET_SIZE(source):
        beyond(b"beyond the buffer")
    if not (0 <= first <= count <= len(starts) and count <= len(ends)):
        beyond(b"beyond the words")
    begin = PyByteArray_AS_STRING(source)
    text, stop = begin + at, begin + end
    start_at, end_at = <u64 *>starts.data.as_voidptr, <u64 *>ends.data.as_voidptr
    while first < count and stop - text >= 6 and text[0] == 36:
        length = <unsigned char>text[1] - 48
        if text[2] == 13 and 0 <= length <= 9:
            here = text + 3
        elif text[3] == 13 and 1 <= length <= 9 and 48 <= text[2] <= 57:
            length = length * 10 + text[2] - 48
            here = text + 4
        elif text[4] == 13 and 1 <= length <= 9 and 48 <= text[2] <= 57 and 48 <= text[3] <= 57:
            length = length * 100 + text[2] * 10 + text[3] - 528
            here = text + 5
        else:
            break
        if here[0] != 10 or length + 2 >= stop - here:
            break
        here += 1
        if here[length] != 13 or here[length + 1] != 10:
            break
        start_at[first] = here - begin
        text = here + length
        end_at[first] = text - begin
        text += 2
        first += 1
    return first


cdef inline Py_ssize_t _decimal(const char *text, Py_ssize_t length, u64 *value) noexcept:
    # Reads leading digits, at most 18, as a number. Returns their number, or 0 for more than 18.
    cdef Py_ssize_t at = 0
    cdef u64 found = 0
    while at < length and 48 <= text[at] <= 57:
        if at == 18:
            return 0
        found = found * 10 + <u64>(text[at] - 48)
        at += 1
    value[0] = found
    return at


cdef inline bint read_id(
    bytearray source, Py_ssize_t start, Py_ssize_t end, array.array words
) except -1:
    cdef const char *text
    cdef Py_ssize_t length = end - start, first, second
    cdef u64 *found
    if not 0 <= start <= end <= PyByteArray_GET_SIZE(source):
        beyond(b"beyond the buffer")
    if len(words) < 3:
        beyond(b"beyond the words")
    text = PyByteArray_AS_STRING(source) + start
    found = <u64 *>words.data.as_voidptr
    first = _decimal(text, length, found)
    if first == 0:
        return False
    found[1] = found[2] = 0
    if first == length:
        return True
    if text[first] != 45:
        return False
    second = _decimal(text + first + 1, length - first - 1, found + 1)
    found[2] = 1
    return second > 0 and first + 1 + second == length


cdef inline bint _integer(const char *text, Py_ssize_t length, u64 *found) noexcept:
    # Reads magnitude and sign of a decimal number, as `read_integer` does.
    cdef bint negative = length > 0 and text[0] == 45
    if length == negative or (text[negative] == 48 and length > 1):
        return False
    if _decimal(text + negative, length - negative, found) != length - negative:
        return False
    found[1] = negative
    return True


cdef inline bint read_integer(
    bytearray source, Py_ssize_t start, Py_ssize_t end, array.array words
) except -1:
    if not 0 <= start <= end <= PyByteArray_GET_SIZE(source):
        beyond(b"beyond the buffer")
    if len(words) < 2:
        beyond(b"beyond the words")
    return _integer(
        PyByteArray_AS_STRING(source) + start, end - start, <u64 *>words.data.as_voidptr
    )


cdef inline short_integer(bytes text):
    cdef u64 found[2]
    if not _integer(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text), found):
        return None
    return -<long long>found[0] if found[1] else <long long>found[0]


cdef extern from *:
    """
    static const char headwater_pairs[] =
        "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
        "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
        "8081828384858687888990919293949596979899";
    static inline int headwater_digits(char *end, unsigned long long value) {
        char *at = end;
        while (value >= 100) {
            at -= 2;
            memcpy(at, headwater_pairs + 2 * (value % 100), 2);
            value /= 100;
        }
        if (value >= 10) {
            at -= 2;
            memcpy(at, headwater_pairs + 2 * value, 2);
        } else {
            *--at = (char)(48 + value);
        }
        return (int)(end - at);
    }
    /* The same for the milliseconds of an id. They are usually those of the previous id, so their digits are
       cached, at the end of a buffer of 24 bytes. The caller must hold the GIL. */
    static unsigned long long headwater_last_ms = 0;
    static char headwater_last_digits[24] = "                       0";
    static int headwater_last_count = 1;
    static inline int headwater_ms_digits(char *end, unsigned long long ms) {
        if (ms != headwater_last_ms) {
            headwater_last_count = headwater_digits(headwater_last_digits + 24, ms);
            headwater_last_ms = ms;
        }
        memcpy(end - 24, headwater_last_digits, 24);
        return headwater_last_count;
    }
    """
    # Writes `value` in decimal, its last digit before `end`. Returns the number of digits.
    int _digits "headwater_digits"(char *end, u64 value) noexcept
    # Does the same, but may overwrite the 24 bytes before `end`.
    int _ms_digits "headwater_ms_digits"(char *end, u64 ms) noexcept


cdef inline char *_id_before(char *end, u64 ms, u64 seq) noexcept:
    # Writes $15 CR LF 1526569498055-0 CR LF, its last byte before `end`. Returns its start. May overwrite the
    # 50 bytes before `end`.
    cdef char *begin = end - 2
    cdef int length
    begin[0], begin[1] = 13, 10
    length = _digits(begin, seq)
    begin -= length + 1
    begin[0] = 45
    length += 1 + _ms_digits(begin, ms)
    begin = end - 2 - length - 2
    begin[0], begin[1] = 13, 10
    begin -= _digits(begin, length) + 1
    begin[0] = 36
    return begin


cdef inline bytes decimal_text(long long value):
    cdef char text[24]
    cdef bint negative = value < 0
    cdef Py_ssize_t count = _digits(text + 24, -<u64>value if negative else <u64>value)
    if negative:
        count += 1
        text[24 - count] = 45
    return PyBytes_FromStringAndSize(text + 24 - count, count)


cdef inline int append_id(bytearray target, u64 ms, u64 seq) except -1:
    cdef char text[96]
    cdef char *begin = _id_before(text + 96, ms, seq)
    cdef Py_ssize_t count = text + 96 - begin
    memcpy(_room(target, count), begin, count)
    return 0


cdef inline char *_header_before(char *end, int mark, u64 value) noexcept:
    # Writes *4 CR LF, its last byte before `end`. Returns its start.
    cdef char *begin = end - 2
    begin[0], begin[1] = 13, 10
    begin -= _digits(begin, value) + 1
    begin[0] = <char>mark
    return begin


cdef inline int append_entry(
    bytearray target, u64 ms, u64 seq, Py_ssize_t count, bytearray source, Py_ssize_t start,
    Py_ssize_t end
) except -1:
    cdef char header[96]
    cdef char *begin
    cdef char *room
    cdef Py_ssize_t length
    if not 0 <= start <= end <= PyByteArray_GET_SIZE(source):
        beyond(b"beyond the buffer")
    begin = _id_before(_header_before(header + 96, 42, count), ms, seq) - 4
    memcpy(begin, b"*2\r\n", 4)
    length = header + 96 - begin
    room = _room(target, length + end - start)
    memcpy(room, begin, length)
    memcpy(room + length, PyByteArray_AS_STRING(source) + start, end - start)
    return 0


cdef inline int append_header(bytearray target, int mark, u64 value) except -1:
    cdef char text[32]
    cdef char *begin = _header_before(text + 32, mark, value)
    cdef Py_ssize_t count = text + 32 - begin
    memcpy(_room(target, count), begin, count)
    return 0


cdef inline int append_fours(
    bytearray target, object source, array.array offsets, Py_ssize_t first, Py_ssize_t end,
    Py_ssize_t stop,
) except -1:
    cdef Py_ssize_t at, begin, behind, size
    cdef char *room
    cdef const char *bytes_at = content(source, &size)
    if not (0 <= first < end <= len(offsets) and stop <= size):
        beyond(b"beyond the buffer")
    begin = offsets.data.as_uints[first]
    if not begin <= stop:
        beyond(b"beyond the buffer")
    room = _room(target, stop - begin + 8 * (end - first))
    for at in range(first, end):
        behind = offsets.data.as_uints[at + 1] if at + 1 < end else stop
        if not begin + 4 <= behind <= stop:
            beyond(b"not an entry")
        memcpy(room, bytes_at + begin, behind - begin)
        room[1] = 52  # 4 instead of 2
        room += behind - begin
        memcpy(room, b":0\r\n:0\r\n", 8)
        room += 8
        begin = behind
    return 0


cdef inline array.array new_words(array.array like, Py_ssize_t count):
    return array.clone(like, count, False)


cdef inline int fit_words(array.array words, Py_ssize_t count) except -1:
    if count < 0:
        beyond(b"negative count")
    array.resize(words, count)
    return 0


cdef inline int copy_words(
    array.array target, Py_ssize_t at, array.array source, Py_ssize_t start, Py_ssize_t count
) except -1:
    if not (0 <= count and 0 <= start <= len(source) - count):
        beyond(b"beyond the words")
    if not 0 <= at <= len(target) - count:
        beyond(b"beyond the target")
    memmove(
        <u64 *>target.data.as_voidptr + at, <u64 *>source.data.as_voidptr + start,
        count * sizeof(u64),
    )
    return 0


cdef inline int put_records(
    array.array records, Py_ssize_t at, array.array ids, Py_ssize_t first, Py_ssize_t count,
    u64 third, u64 fourth,
) except -1:
    cdef u64 *record
    cdef const u64 *entry_id
    cdef Py_ssize_t number
    if not (0 <= count and 0 <= first <= len(ids) // 2 - count):
        beyond(b"beyond the words")
    if not 0 <= at <= len(records) // 4 - count:
        beyond(b"beyond the records")
    record = <u64 *>records.data.as_voidptr + 4 * at
    entry_id = <const u64 *>ids.data.as_voidptr + 2 * first
    for number in range(count):
        record[0], record[1], record[2], record[3] = entry_id[0], entry_id[1], third, fourth
        record += 4
        entry_id += 2
    return 0


cdef inline u64 word_at(array.array words, Py_ssize_t at) except? 0:
    if not 0 <= at < len(words):
        beyond(b"beyond the words")
    return (<u64 *>words.data.as_voidptr)[at]


cdef inline int set_word(array.array words, Py_ssize_t at, u64 value) except -1:
    if not 0 <= at < len(words):
        beyond(b"beyond the words")
    (<u64 *>words.data.as_voidptr)[at] = value
    return 0


cdef inline int add_word(array.array words, Py_ssize_t at, u64 more) except -1:
    if not 0 <= at < len(words):
        beyond(b"beyond the words")
    (<u64 *>words.data.as_voidptr)[at] += more
    return 0


cdef inline int push_id(array.array words, u64 ms, u64 seq) except -1:
    cdef Py_ssize_t size = len(words)
    array.resize_smart(words, size + 2)
    (<u64 *>words.data.as_voidptr)[size] = ms
    (<u64 *>words.data.as_voidptr)[size + 1] = seq
    return 0


cdef inline int push_word(array.array words, u64 value) except -1:
    cdef Py_ssize_t size = len(words)
    array.resize_smart(words, size + 1)
    (<u64 *>words.data.as_voidptr)[size] = value
    return 0


cdef inline int insert_words(array.array words, Py_ssize_t at, Py_ssize_t count) except -1:
    cdef Py_ssize_t size = len(words)
    cdef u64 *first
    if not (0 <= at <= size and count >= 0):
        beyond(b"beyond the words")
    array.resize_smart(words, size + count)
    first = <u64 *>words.data.as_voidptr + at
    memmove(first + count, first, (size - at) * sizeof(u64))
    return 0


cdef inline int remove_words(array.array words, Py_ssize_t at, Py_ssize_t count) except -1:
    cdef Py_ssize_t size = len(words)
    cdef u64 *first
    if not (0 <= at and count >= 0 and at <= size - count):
        beyond(b"beyond the words")
    first = <u64 *>words.data.as_voidptr + at
    memmove(first, first + count, (size - at - count) * sizeof(u64))
    array.resize_smart(words, size - count)
    return 0


cdef inline u32 offset_at(array.array offsets, Py_ssize_t at) except? 0:
    if not 0 <= at < len(offsets):
        beyond(b"beyond the offsets")
    return offsets.data.as_uints[at]


cdef inline int set_offset(array.array offsets, Py_ssize_t at, u32 value) except -1:
    if not 0 <= at < len(offsets):
        beyond(b"beyond the offsets")
    offsets.data.as_uints[at] = value
    return 0


cdef inline int push_offset(array.array offsets, u32 value) except -1:
    cdef Py_ssize_t size = len(offsets)
    array.resize_smart(offsets, size + 1)
    offsets.data.as_uints[size] = value
    return 0


cdef inline void prefetch_end(array.array numbers) noexcept:
    _prefetch(numbers.data.as_chars + len(numbers) * numbers.ob_descr.itemsize)


cdef inline void prefetch_bytes_end(bytearray data) noexcept:
    _prefetch(PyByteArray_AS_STRING(data) + PyByteArray_GET_SIZE(data))


cdef inline int put_u8(bytearray target, unsigned char value) except -1:
    _room(target, 1)[0] = <char>value
    return 0


cdef extern from *:
    """
    /* Records are little-endian on every machine. */
    static inline void headwater_little(unsigned char *room, unsigned long long value, int count) {
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        memcpy(room, &value, count);
    #else
        for (int at = 0; at < count; at++) room[at] = (unsigned char)(value >> (8 * at));
    #endif
    }
    """
    void _little "headwater_little"(unsigned char *room, u64 value, int count) noexcept


cdef inline int put_u16(bytearray target, unsigned int value) except -1:
    _little(<unsigned char *>_room(target, 2), value, 2)
    return 0


cdef inline int put_u32(bytearray target, u32 value) except -1:
    _little(<unsigned char *>_room(target, 4), value, 4)
    return 0


cdef inline int put_kind(bytearray target, unsigned char kind, u32 number) except -1:
    cdef unsigned char *room = <unsigned char *>_room(target, 5)
    room[0] = kind
    _little(room + 1, number, 4)
    return 0


cdef inline int put_id(bytearray target, u64 ms, u64 seq) except -1:
    cdef unsigned char *room = <unsigned char *>_room(target, 16)
    _little(room, ms, 8)
    _little(room + 8, seq, 8)
    return 0


cdef inline int put_text(bytearray target, bytes text) except -1:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(text)
    cdef char *room = _room(target, 4 + size)
    _little(<unsigned char *>room, size, 4)
    memcpy(room + 4, PyBytes_AS_STRING(text), size)
    return 0


cdef inline int put_text_part(
    bytearray target, bytearray source, Py_ssize_t start, Py_ssize_t end
) except -1:
    cdef char *room
    if not 0 <= start <= end <= PyByteArray_GET_SIZE(source):
        beyond(b"beyond the buffer")
    room = _room(target, 4 + end - start)  # may move the bytes, if `source` is `target`
    _little(<unsigned char *>room, end - start, 4)
    memcpy(room + 4, PyByteArray_AS_STRING(source) + start, end - start)
    return 0


cdef inline int put_u64(bytearray target, u64 value) except -1:
    _little(<unsigned char *>_room(target, 8), value, 8)
    return 0


cdef inline int put_i64(bytearray target, long long value) except -1:
    return put_u64(target, <u64>value)


cdef inline int put_words(bytearray target, array.array words) except -1:
    cdef Py_ssize_t count = len(words), at
    cdef const u64 *source = <const u64 *>words.data.as_voidptr
    cdef char *room = _room(target, 8 * count)
    for at in range(count):
        _little(<unsigned char *>room + 8 * at, source[at], 8)
    return 0


cdef inline int set_u32(bytearray target, Py_ssize_t at, u32 value) except -1:
    if not 0 <= at <= PyByteArray_GET_SIZE(target) - 4:
        beyond(b"beyond the target")
    _little(<unsigned char *>PyByteArray_AS_STRING(target) + at, value, 4)
    return 0


cdef inline int set_u64(bytearray target, Py_ssize_t at, u64 value) except -1:
    if not 0 <= at <= PyByteArray_GET_SIZE(target) - 8:
        beyond(b"beyond the target")
    _little(<unsigned char *>PyByteArray_AS_STRING(target) + at, value, 8)
    return 0


cdef inline u64 u64_at(bytearray source, Py_ssize_t at) except? 0:
    cdef const unsigned char *found
    cdef u64 value = 0
    cdef int byte
    if not 0 <= at <= PyByteArray_GET_SIZE(source) - 8:
        beyond(b"beyond the buffer")
    found = <const unsigned char *>PyByteArray_AS_STRING(source) + at
    for byte in range(8):
        value |= <u64>found[byte] << (8 * byte)
    return value
