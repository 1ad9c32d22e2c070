# The C version of page_cache.py.
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_SetFromErrno

cdef extern from *:
    """
    #include <errno.h>
    #if defined(__linux__)
    #include <sys/syscall.h>
    #include <sys/uio.h>
    #include <unistd.h>
    #endif
    /* Returns the number of bytes, -1 if none is in memory, -2 with an error in errno. glibc has had preadv2 since
       2.26; wheels run with an older one. */
    static inline Py_ssize_t headwater_read_cached(
        int descriptor, char *room, size_t size, unsigned long long offset
    ) {
    #if defined(__linux__) && defined(SYS_preadv2)
        struct iovec part = {room, size};
        unsigned long high = (unsigned long)(offset >> 32 >> (8 * sizeof(long) - 32));
        Py_ssize_t count = syscall(
            SYS_preadv2, descriptor, &part, 1ul, (unsigned long)offset, high, 8 /* RWF_NOWAIT */
        );
        if (count >= 0) return count;
        return errno == EAGAIN || errno == EINTR ? -1 : -2;
    #else
        errno = ENOSYS;
        return -2;
    #endif
    }
    """
    Py_ssize_t headwater_read_cached(
        int descriptor, char *room, size_t size, unsigned long long offset
    ) noexcept


cdef inline bytes read_cached(int descriptor, unsigned long long offset, Py_ssize_t length):
    cdef bytes made = PyBytes_FromStringAndSize(NULL, length)
    cdef Py_ssize_t done = headwater_read_cached(
        descriptor, PyBytes_AS_STRING(made), length, offset
    )
    if done == -2:
        PyErr_SetFromErrno(OSError)
    return made if done == length else None
