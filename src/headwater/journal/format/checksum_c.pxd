# The functions of checksum.py in C. They use the processor's CRC instruction if it has one.
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.memoryview cimport PyMemoryView_Check, PyMemoryView_GET_BUFFER
from headwater.native.memory_c cimport beyond, u32, u64


cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    #define HEADWATER_CRC_INSTRUCTION 1
    __attribute__((target("sse4.2")))
    static uint32_t headwater_crc_fast(uint32_t crc, const unsigned char *at, size_t count) {
        uint64_t wide = crc, word;
        for (; count >= 8; count -= 8, at += 8) {
            memcpy(&word, at, 8);
            wide = __builtin_ia32_crc32di(wide, word);
        }
        crc = (uint32_t)wide;
        for (; count; count--) crc = __builtin_ia32_crc32qi(crc, *at++);
        return crc;
    }
    #endif
    static uint32_t headwater_crc_table[256];
    static uint32_t headwater_crc_slow(uint32_t crc, const unsigned char *at, size_t count) {
        if (!headwater_crc_table[1]) {
            for (uint32_t byte = 0; byte < 256; byte++) {
                uint32_t value = byte;
                for (int bit = 0; bit < 8; bit++)
                    value = value & 1 ? (value >> 1) ^ 0x82F63B78u : value >> 1;
                headwater_crc_table[byte] = value;
            }
        }
        for (; count; count--) crc = (crc >> 8) ^ headwater_crc_table[(crc ^ *at++) & 255];
        return crc;
    }
    static uint32_t headwater_crc(uint32_t crc, const char *at, size_t count) {
        const unsigned char *bytes = (const unsigned char *)at;
    #ifdef HEADWATER_CRC_INSTRUCTION
        if (__builtin_cpu_supports("sse4.2")) return ~headwater_crc_fast(~crc, bytes, count);
    #endif
        return ~headwater_crc_slow(~crc, bytes, count);
    }
    static inline uint32_t headwater_place(uint32_t key, uint64_t offset) {
        uint32_t mixed = key ^ (uint32_t)offset;
        mixed = (mixed ^ mixed >> 16) * 0x21F0AAADu;
        mixed = (mixed ^ mixed >> 15) * 0xD35A2D97u;
        return mixed ^ mixed >> 15;
    }
    /* Little-endian on every machine. Compilers combine the four loads into one. */
    static inline uint32_t headwater_u32(const unsigned char *at) {
        return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
    }
    /* Returns the bytes that count for the offset of the store (checksum.py), or -1 if the bytes are not complete groups. */
    static int64_t headwater_bind(char *begin, size_t left, uint32_t key, uint64_t offset) {
        unsigned char *at = (unsigned char *)begin;
        int64_t counted = 0;
        while (left > 24) {
            size_t size = 24 + (size_t)headwater_u32(at);
            uint32_t bound = headwater_u32(at + 4) ^ headwater_place(key, offset);
            if (size > left) return -1;
            if (at[24] >= 0x10 && at[24] != 0x29) counted += size - 24;
            at[4] = (unsigned char)bound, at[5] = (unsigned char)(bound >> 8);
            at[6] = (unsigned char)(bound >> 16), at[7] = (unsigned char)(bound >> 24);
            at += size, left -= size, offset += size;
        }
        return left ? -1 : counted;
    }
    """
    u32 _crc "headwater_crc"(u32 crc, const char *at, size_t count) noexcept
    u32 place_mask "headwater_place"(u32 key, u64 offset) noexcept
    long long _bind "headwater_bind"(char *begin, size_t left, u32 key, u64 offset) noexcept


cdef inline u32 extend(u32 crc, bytearray source, Py_ssize_t start, Py_ssize_t end) except? 0:
    if not 0 <= start <= end <= PyByteArray_GET_SIZE(source):
        beyond(b"beyond the buffer")
    return _crc(crc, PyByteArray_AS_STRING(source) + start, end - start)


cdef inline u32 extend_view(u32 crc, source, Py_ssize_t start, Py_ssize_t end) except? 0:
    if not PyMemoryView_Check(source):
        raise TypeError("not a memoryview")
    view = PyMemoryView_GET_BUFFER(source)
    if not 0 <= start <= end <= view.len:
        beyond(b"beyond the view")
    return _crc(crc, <const char *>view.buf + start, end - start)


cdef inline long long bind_groups(
    bytearray target, Py_ssize_t start, Py_ssize_t end, u32 key, u64 offset
) except -1:
    cdef long long counted
    if not 0 <= start <= end <= PyByteArray_GET_SIZE(target):
        beyond(b"beyond the buffer")
    counted = _bind(PyByteArray_AS_STRING(target) + start, end - start, key, offset)
    if counted < 0:
        beyond(b"incomplete group")
    return counted
