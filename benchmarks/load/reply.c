#include <string.h>

#include "reply.h"

enum { LONGEST_LINE = 1 << 30 }; /* a larger length or count is an error */

/* What follows a line's first byte: an unknown type, text, or a number. */
enum { UNKNOWN, TEXT, NUMBER };

static const unsigned char kinds[256] = {
    ['+'] = TEXT,   ['-'] = TEXT,   [','] = TEXT,   ['('] = TEXT,   ['#'] = TEXT,
    ['_'] = TEXT,   ['*'] = NUMBER, ['>'] = NUMBER, ['~'] = NUMBER, ['%'] = NUMBER,
    ['|'] = NUMBER, ['$'] = NUMBER, ['='] = NUMBER, ['!'] = NUMBER, [':'] = NUMBER,
};

static void line_ended(Reply *reply) {
    long number = reply->negative ? -reply->number : reply->number;
    reply->values--;
    switch (reply->kind) {
    case '*':
    case '>':
    case '~':
        if (number > 0) reply->values += number;
        break;
    case '|': /* attributes precede their value */
        reply->values += 1;
        __attribute__((fallthrough));
    case '%':
        if (number > 0) reply->values += 2 * number;
        break;
    case '!':
        reply->errors++;
        __attribute__((fallthrough));
    case '$':
    case '=':
        if (number >= 0) reply->skip = number + 2;
        break;
    case '-':
        reply->errors++;
        break;
    }
    reply->kind = 0;
}

static void line_begins(Reply *reply, int kind) {
    reply->kind = kind;
    reply->number = reply->negative = 0;
    if (!reply->values) {
        reply->values = 1;
        reply->push = kind == '>';
    }
    if (kind == '-') reply->error_size = 0;
    if (kinds[kind] == UNKNOWN) reply->broken = 1;
}

/* Parses text up to the end of the line; stores the beginning of an error's text. */
static void read_text(Reply *reply, const char *data, size_t size, size_t *at) {
    const char *end = memchr(data + *at, '\n', size - *at);
    size_t length = end ? (size_t)(end - data) - *at : size - *at;
    if (reply->kind == '-') {
        size_t room = ERROR_TEXT - 1 - reply->error_size;
        size_t kept = length < room ? length : room;
        memcpy(reply->error + reply->error_size, data + *at, kept);
        reply->error_size += kept;
        reply->error[reply->error_size] = 0;
    }
    *at += length + (end != NULL);
    if (end) line_ended(reply);
}

static void read_number(Reply *reply, const char *data, size_t size, size_t *at) {
    size_t here = *at;
    long number = reply->number;
    for (; here < size; here++) {
        unsigned digit = (unsigned char)data[here] - '0';
        if (digit > 9) break;
        number = number * 10 + digit;
        if (number > LONGEST_LINE && reply->kind != ':') reply->broken = 1;
    }
    reply->number = number;
    if (here < size) {
        char byte = data[here++];
        if (byte == '\n') line_ended(reply);
        else if (byte == '-') reply->negative = 1;
        else if (byte != '\r') reply->broken = 1;
    }
    *at = here;
}

/* Fast path for the most common lines, of which a reply with entries has thousands: the header of an
 * array, or a whole bulk string, if it is completely received. Returns whether it was one. */
static int read_common(Reply *reply, const char *data, size_t size, size_t *at) {
    size_t here = *at + 1;
    long number = 0;
    char kind = data[*at];
    if ((kind != '$' && kind != '*') || !reply->values) return 0;
    for (; here < size && (unsigned char)(data[here] - '0') <= 9; here++) {
        number = number * 10 + (data[here] - '0');
        if (number > LONGEST_LINE) return 0;
    }
    if (here + 2 > size || here == *at + 1 || data[here] != '\r' || data[here + 1] != '\n') return 0;
    here += 2;
    if (kind == '$') {
        if (size - here < (size_t)number + 2) return 0;
        here += number + 2;
        if (data[here - 2] != '\r' || data[here - 1] != '\n') reply->broken = 1;
    } else {
        reply->values += number;
    }
    reply->values--;
    *at = here;
    return 1;
}

int reply_next(Reply *reply, const char *data, size_t size, size_t *at) {
    while (*at < size && !reply->broken) {
        if (reply->skip) {
            size_t here = size - *at;
            if (here > (size_t)reply->skip) here = reply->skip;
            reply->skip -= here;
            *at += here;
        } else if (!reply->kind && read_common(reply, data, size, at)) {
            /* check below whether the reply has ended */
        } else if (!reply->kind) {
            line_begins(reply, (unsigned char)data[(*at)++]);
        } else if (kinds[reply->kind] == TEXT) {
            read_text(reply, data, size, at);
        } else {
            read_number(reply, data, size, at);
        }
        if (!reply->values && !reply->skip && !reply->kind && !reply->push) return 1;
    }
    return 0;
}

/* Returns the number after the type byte at `at`, and moves `at` behind the line; negative for nil. */
static long header(const char *data, size_t size, size_t *at) {
    long number = 0;
    int negative = 0;
    size_t here = *at + 1;
    for (; here < size && data[here] != '\r'; here++) {
        if (data[here] == '-') negative = 1;
        else number = number * 10 + (data[here] - '0');
    }
    *at = here + 2;
    return negative ? -number : number;
}

/* Skips one value and returns the sum of the integers in it. */
static long skip_value(const char *data, size_t size, size_t *at) {
    char kind = data[*at];
    long number = header(data, size, at), sum = 0;
    if (kind == ':') return number;
    if (kind == '$' || kind == '=') {
        if (number >= 0) *at += number + 2;
        return 0;
    }
    if (kind == '%') number *= 2;
    if (kind == '*' || kind == '~' || kind == '%')
        for (long i = 0; i < number; i++) sum += skip_value(data, size, at);
    return sum;
}

long reply_sum(const char *data, size_t size) {
    size_t at = 0;
    return skip_value(data, size, &at);
}

int reply_ids(const char *data, size_t size, Id *ids, int most) {
    size_t at = 0;
    char kind = data[0];
    if (strchr("*%", kind) == NULL || header(data, size, &at) < 1) return -1;
    if (kind == '*') header(data, size, &at); /* *2: the stream's name and its entries */
    skip_value(data, size, &at);              /* the name */
    long entries = header(data, size, &at);
    int found = 0;
    for (long i = 0; i < entries && found < most; i++) {
        long parts = header(data, size, &at);
        long length = header(data, size, &at);
        ids[found].text = data + at;
        ids[found++].length = (int)length;
        at += length + 2;
        for (long part = 1; part < parts; part++) skip_value(data, size, &at);
    }
    return found;
}
