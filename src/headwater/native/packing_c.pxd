# The functions of packing.py in C, with the rule of memory_c.pxd: a wrong argument raises an exception and
# never accesses a byte outside a buffer.
from cpython cimport array
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from headwater.native.memory_c cimport content, push_offset, u32, u64


cdef inline Py_ssize_t _number_at(
    const char *text, Py_ssize_t size, Py_ssize_t *at, char mark
) except -1:
    # Returns the number in the header at `at`. Moves `at` past the header.
    cdef u64 value = 0
    cdef Py_ssize_t here = at[0], begin
    if here >= size or text[here] != mark:
        raise ValueError("not an entry")
    here += 1
    begin = here
    while here < size and here - begin < 18 and 48 <= text[here] <= 57:
        value = value * 10 + <u64>(text[here] - 48)
        here += 1
    if here == begin or here + 2 > size or text[here] != 13 or text[here + 1] != 10:
        raise ValueError("not an entry")
    at[0] = here + 2
    return <Py_ssize_t>value


cdef inline int _pass_bulk(const char *text, Py_ssize_t size, Py_ssize_t *at) except -1:
    # Almost all names and values have a length of one or two digits. Such a length is read without a loop, because
    # what follows can be read only when the length is known.
    cdef Py_ssize_t here = at[0], length
    if here + 5 > size or text[here] != 36 or not 48 <= text[here + 1] <= 57:
        length = _number_at(text, size, &here, 36)
    elif text[here + 2] == 13 and text[here + 3] == 10:
        length = text[here + 1] - 48
        here += 4
    elif 48 <= text[here + 2] <= 57 and text[here + 3] == 13 and text[here + 4] == 10:
        length = 10 * (text[here + 1] - 48) + text[here + 2] - 48
        here += 5
    else:
        length = _number_at(text, size, &here, 36)
    if length > size - here - 2:
        raise ValueError("not an entry")
    at[0] = here + length + 2
    return 0


cdef inline int _pass_entry(const char *text, Py_ssize_t size, Py_ssize_t *at) except -1:
    cdef Py_ssize_t left
    if _number_at(text, size, at, 42) != 2:
        raise ValueError("not an entry")
    _pass_bulk(text, size, at)
    left = _number_at(text, size, at, 42)
    while left > 0:
        _pass_bulk(text, size, at)
        left -= 1
    return 0


cdef inline int index_entries(data, array.array offsets) except -1:
    cdef Py_ssize_t at = 0, size
    text = content(data, &size)
    while at < size:
        push_offset(offsets, <u32>at)
        _pass_entry(text, size, &at)
    return 0


cdef inline Py_ssize_t pass_entries(data, Py_ssize_t at, Py_ssize_t count) except -1:
    cdef Py_ssize_t size
    text = content(data, &size)
    if at < 0:
        raise ValueError("not an entry")
    while count > 0:
        _pass_entry(text, size, &at)
        count -= 1
    return at


cdef inline unsigned char *_pack_run(unsigned char *room, u64 times, u64 rise, u64 step) noexcept:
    # Writes three numbers, seven bits a byte. Returns the position of the next byte.
    cdef u64 values[3]
    cdef u64 value
    cdef int at
    values[0], values[1], values[2] = times, rise, step
    for at in range(3):
        value = values[at]
        while value > 127:
            room[0] = <unsigned char>(value & 127 | 128)
            room += 1
            value >>= 7
        room[0] = <unsigned char>value
        room += 1
    return room


cdef inline bytes pack_ids(array.array ids):
    cdef Py_ssize_t count = len(ids) // 2, at
    cdef const u64 *words = <const u64 *>ids.data.as_voidptr
    cdef u64 ms = 0, seq = 0, times = 0, rise = 0, step = 0, found_rise, found_step
    cdef bytearray made = bytearray()
    cdef unsigned char *begin
    cdef unsigned char *room
    PyByteArray_Resize(made, 30 * count)  # the maximum size of three numbers, for each id
    begin = room = <unsigned char *>PyByteArray_AS_STRING(made)
    for at in range(count):
        found_rise = words[2 * at] - ms
        found_step = words[2 * at + 1]
        if found_rise == 0:
            found_step -= seq
        if times and found_rise == rise and found_step == step:
            times += 1
        else:
            if times:
                room = _pack_run(room, times, rise, step)
            times, rise, step = 1, found_rise, found_step
        ms, seq = words[2 * at], words[2 * at + 1]
    if times:
        room = _pack_run(room, times, rise, step)
    return PyBytes_FromStringAndSize(<char *>begin, room - begin)


cdef inline Py_ssize_t _next_run(
    const unsigned char *text, Py_ssize_t size, Py_ssize_t at, u64 *values
) noexcept:
    # Reads three numbers. Returns the position of the next run.
    cdef int which, shift
    for which in range(3):
        values[which] = 0
        shift = 0
        while at < size and shift < 64:
            values[which] |= <u64>(text[at] & 127) << shift
            at += 1
            if text[at - 1] < 128:
                break
            shift += 7
    return at


cdef inline Py_ssize_t find_packed(bytes packed, u64 ms, u64 seq) except -1:
    cdef const unsigned char *text = <const unsigned char *>PyBytes_AS_STRING(packed)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(packed), at = 0, before = 0
    cdef u64 values[3]
    cdef u64 times, rise, step, less, last_ms = 0, last_seq = 0
    while at < size:
        at = _next_run(text, size, at, values)
        times, rise, step = values[0], values[1], values[2]
        if rise:
            less = (ms - last_ms - 1) // rise if ms > last_ms else 0
            if less >= times:
                less = times
            elif last_ms + rise * (less + 1) == ms and step < seq:
                less += 1
            last_ms += rise * times
            last_seq = step
        else:
            less = times if last_ms < ms else 0
            if last_ms == ms and step:
                less = (seq - last_seq - 1) // step if seq > last_seq else 0
                less = times if less > times else less
            last_seq += step * times
        before += less
        if less < times:
            break
    return before


cdef inline int unpack_ids(bytes packed, Py_ssize_t count, array.array ids) except -1:
    cdef u64 *words
    cdef const unsigned char *text = <const unsigned char *>PyBytes_AS_STRING(packed)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(packed), at = 0, made = 0
    cdef u64 values[3]
    cdef u64 ms = 0, seq = 0
    array.resize(ids, 2 * count)
    words = <u64 *>ids.data.as_voidptr
    while at < size:
        at = _next_run(text, size, at, values)
        while values[0]:
            if made == count:
                raise ValueError("more ids than expected")
            seq = values[2] if values[1] else seq + values[2]
            ms += values[1]
            words[2 * made], words[2 * made + 1] = ms, seq
            made += 1
            values[0] -= 1
    if made != count:
        raise ValueError("fewer ids than expected")
    return 0


cdef inline bytes pack_rows(array.array words, Py_ssize_t width):
    cdef Py_ssize_t count = len(words), at
    cdef const u64 *source = <const u64 *>words.data.as_voidptr
    cdef u64 rise, value
    cdef bytearray made = bytearray()
    cdef unsigned char *begin
    cdef unsigned char *room
    PyByteArray_Resize(made, 10 * count)  # the maximum size of a number, for each word
    begin = room = <unsigned char *>PyByteArray_AS_STRING(made)
    for at in range(count):
        rise = source[at] - (source[at - width] if at >= width else 0)
        value = rise << 1 if rise < <u64>1 << 63 else ((0 - rise) << 1) - 1
        while value > 127:
            room[0] = <unsigned char>(value & 127 | 128)
            room += 1
            value >>= 7
        room[0] = <unsigned char>value
        room += 1
    return PyBytes_FromStringAndSize(<char *>begin, room - begin)


cdef inline int unpack_rows(
    bytes packed, Py_ssize_t width, Py_ssize_t count, array.array words
) except -1:
    cdef u64 *target
    cdef const unsigned char *text = <const unsigned char *>PyBytes_AS_STRING(packed)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(packed), at = 0, made = 0, most = count * width
    cdef u64 value, rise
    cdef int shift
    if most > size:
        raise ValueError("fewer rows than expected")
    array.resize(words, most)
    target = <u64 *>words.data.as_voidptr
    while at < size:
        if made == most:
            raise ValueError("more rows than expected")
        value = 0
        shift = 0
        while at < size and shift < 64:
            value |= <u64>(text[at] & 127) << shift
            at += 1
            if text[at - 1] < 128:
                break
            shift += 7
        rise = 0 - ((value >> 1) + 1) if value & 1 else value >> 1
        target[made] = (target[made - width] if made >= width else 0) + rise
        made += 1
    if made != most:
        raise ValueError("fewer rows than expected")
    return 0
