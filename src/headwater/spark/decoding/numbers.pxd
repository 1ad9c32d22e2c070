cimport cython

cdef int _ZERO, _NINE, _MINUS, _POINT, _COLON, _SAFE_DIGITS, _MS_DIGITS
cdef long long _LAST_MS


@cython.locals(
    starts="const int[::1]", view="const unsigned char[::1]", values="long long[::1]",
    count=Py_ssize_t, index=Py_ssize_t, at=Py_ssize_t, end=Py_ssize_t, empty=Py_ssize_t,
    negative=bint, number="long long", digit=int,
)
cpdef object integers(object offsets, object data, long long low, long long high)

@cython.locals(
    starts="const int[::1]", view="const unsigned char[::1]", values="long long[::1]",
    count=Py_ssize_t, index=Py_ssize_t, at=Py_ssize_t, end=Py_ssize_t, empty=Py_ssize_t,
    negative=bint, number="long long", digits=int, behind=int, byte=int, most=int, _=int,
)
cpdef object decimals(object offsets, object data, int precision, int scale)

@cython.locals(number=Py_ssize_t, index=Py_ssize_t, digit=int)
cdef Py_ssize_t _digits(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t count
) except? -100

@cython.locals(before="long long")
cdef long long _days(long long year, long long month, long long day) except? -100

@cython.locals(leap=bint)
cdef int _days_in(long long year, int month) except? -100

@cython.locals(
    year="long long", month=int, day=int, hour=int, minute=int, second=int, places=Py_ssize_t,
    fraction="long long", seconds="long long", _=Py_ssize_t,
)
cdef long long _instant(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end
) except? -100

@cython.locals(
    starts="const int[::1]", view="const unsigned char[::1]", values="long long[::1]",
    count=Py_ssize_t, index=Py_ssize_t, at=Py_ssize_t, end=Py_ssize_t, empty=Py_ssize_t,
    moment="long long",
)
cpdef object instants(object offsets, object data)

@cython.locals(
    starts="const int[::1]", view="const unsigned char[::1]", values="long long[::1]",
    count=Py_ssize_t, index=Py_ssize_t, at=Py_ssize_t, end=Py_ssize_t, first=Py_ssize_t,
    number="long long", digit=int,
)
cpdef object id_instants(object offsets, object data)
