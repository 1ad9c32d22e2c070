# The C version of transfers.py.
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.exc cimport PyErr_SetFromErrno

cdef extern from *:
    """
    #include <errno.h>
    #include <sys/socket.h>
    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0
    #endif
    static inline int headwater_waits(void) {
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    }
    """
    Py_ssize_t recv(int descriptor, void *buffer, size_t size, int flags) noexcept
    Py_ssize_t send(int descriptor, const void *buffer, size_t size, int flags) noexcept
    int headwater_waits() noexcept
    int MSG_NOSIGNAL


cdef inline Py_ssize_t receive_some(object client, int descriptor, bytearray space) except -2:
    cdef Py_ssize_t count = recv(
        descriptor, PyByteArray_AS_STRING(space), PyByteArray_GET_SIZE(space), 0
    )
    if count < 0 and not headwater_waits():
        PyErr_SetFromErrno(OSError)
    return count


cdef inline Py_ssize_t send_some(object client, int descriptor, bytearray data) except -2:
    cdef Py_ssize_t count = send(
        descriptor, PyByteArray_AS_STRING(data), PyByteArray_GET_SIZE(data), MSG_NOSIGNAL
    )
    if count < 0 and not headwater_waits():
        PyErr_SetFromErrno(OSError)
    return count
