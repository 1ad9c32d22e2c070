/* Sends prepared requests repeatedly, for a number of seconds or a number of times. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run.h"

static char *requests;
static size_t *begins; /* of each request, and the end */
static int request_count;

/* Reads the requests from standard input, and repeats them until they fill whole batches. */
static void read_requests(int pipeline) {
    size_t size = 0, room = 1 << 20, at = 0;
    char *text = malloc(room);
    ssize_t got;
    while ((got = read(0, text + size, room - size)) > 0) {
        size += got;
        if (size == room) text = realloc(text, room *= 2);
    }
    int count = 0;
    size_t *ends = malloc((size / 4 + 2) * sizeof *ends);
    Reply one = {0}; /* a request has the form of a reply */
    while (reply_next(&one, text, size, &at)) ends[++count] = at;
    if (!count || ends[count] != size) fail("standard input does not contain whole requests");
    ends[0] = 0;
    int turns = 1;
    while (count * turns % pipeline) turns++;
    requests = malloc(size * turns);
    begins = malloc((count * turns + 1) * sizeof *begins);
    for (int turn = 0; turn < turns; turn++) {
        memcpy(requests + turn * size, text, size);
        for (int n = 0; n <= count; n++) begins[turn * count + n] = turn * size + ends[n];
    }
    request_count = count * turns;
    free(text);
    free(ends);
}

static void send_batch(Link *link, int size) {
    size_t first = begins[link->turn], last = begins[link->turn + size];
    link->turn = (link->turn + size) % request_count;
    link->awaited = size;
    link_send(link, requests + first, last - first);
}

/* --- replies that do not change ------------------------------------------------------------------ */

enum { EDGE = 64 };

/* The reply to a request when it was last parsed completely. While nothing is written, the same request
 * gets the same reply. So of a reply with the same beginning only the end is compared, and the kernel
 * discards the rest: receiving and parsing a thousand entries costs a client more than sending them
 * costs a server. */
typedef struct {
    size_t size;
    char head[EDGE], tail[EDGE];
} Known;

static Known *known;

/* Parses the received part of a reply; remembers the reply when it is complete. */
static int read_new(Link *link, Known *answer) {
    if (!link_read(link)) return 0;
    answer->size = link->size >= 2 * EDGE ? link->size : 0;
    if (answer->size) {
        memcpy(answer->head, link->data, EDGE);
        memcpy(answer->tail, link->data + link->size - EDGE, EDGE);
    }
    link_drop(link);
    return 1;
}

/* Receives a part of a reply that may be known, and returns whether the reply is complete.
 * `link->passed` counts its discarded bytes. */
static int receive_same(Link *link) {
    Known *answer = &known[(link->turn + request_count - 1) % request_count];
    if (!answer->size || link->read) {
        link_take(link, 0);
        return read_new(link, answer);
    }
    if (!link->passed) {
        if (link->size < EDGE) link_take(link, EDGE - link->size);
        size_t here = link->size < EDGE ? link->size : EDGE;
        if (memcmp(link->data, answer->head, here)) return read_new(link, answer);
        if (here < EDGE) return 0;
    }
    size_t tail = answer->size - EDGE;
    if (EDGE + link->passed < tail) link->passed += link_pass(link, tail - EDGE - link->passed);
    if (EDGE + link->passed < tail) return 0;
    if (link->size < 2 * EDGE) link_take(link, 2 * EDGE - link->size);
    if (link->size < 2 * EDGE) return 0;
    if (memcmp(link->data + EDGE, answer->tail, EDGE))
        fail("a reply does not end as it did before");
    link->passed = 0;
    link_drop(link);
    return 1;
}

/* --- modes --------------------------------------------------------------------------------------- */

void repeat(Run *run, double seconds, int pipeline, int same) {
    struct epoll_event events[EVENTS];
    read_requests(pipeline);
    if (same && pipeline != 1) fail("replies are compared one by one: PIPELINE must be 1");
    known = calloc(request_count, sizeof *known);
    int batches = request_count / pipeline;
    run_open(run);
    run_begin(run, seconds);
    for (int at = 0; at < run->connections; at++) {
        run->links[at].turn = (int)((int64_t)at * batches / run->connections) * pipeline;
        send_batch(&run->links[at], pipeline);
    }
    while (run_goes_on(run)) {
        int ready = run_wait(run, events, 100);
        for (int at = 0; at < ready; at++) {
            Link *link = &run->links[events[at].data.u32];
            if (same) {
                if (!receive_same(link)) continue;
            } else {
                link->awaited -= link_receive(link);
                if (link->awaited < 0) fail("more replies than requests arrived");
                link_drop(link); /* link->reply keeps the state of an incomplete reply */
                if (link->awaited) continue;
            }
            histogram_add(&run->histogram, now_ns() - link->sent_ns, pipeline);
            run->operations += pipeline;
            send_batch(link, pipeline);
        }
    }
}

void times(Run *run, long total, int pipeline) {
    struct epoll_event events[EVENTS];
    read_requests(1);
    long sent = 0;
    run_open(run);
    run_begin(run, 0);
    for (;;) {
        /* one batch per connection, with the requests in the given order */
        int asked = 0;
        for (int at = 0; at < run->connections && sent < total; at++) {
            Link *link = &run->links[at];
            int first = (int)(sent % request_count);
            int size = pipeline;
            if (size > total - sent) size = (int)(total - sent);
            if (size > request_count - first) size = request_count - first;
            link->turn = first;
            send_batch(link, size);
            sent += size;
            asked++;
        }
        if (!asked) return;
        while (asked) {
            int ready = run_wait(run, events, 100);
            for (int at = 0; at < ready; at++) {
                Link *link = &run->links[events[at].data.u32];
                int ended = link_receive(link);
                link->awaited -= ended;
                run->operations += ended;
                if (link->awaited < 0) fail("more replies than requests arrived");
                link_drop(link);
                if (link->awaited) continue;
                histogram_add(&run->histogram, now_ns() - link->sent_ns, 1);
                asked--;
            }
        }
    }
}

/* --- fill ---------------------------------------------------------------------------------------- */

enum { BATCH = 500 };

static uint64_t random_state = 88172645463325252; /* the same entries in every run, on every server */

static char random_digit(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (char)('0' + (random_state >> 32) % 10);
}

/* Sends XADD KEY n-1 WORD…, for n from `first` to `last`; each # in a word becomes a random digit. */
void fill(Run *run, const char *key, long first, long last, const char **given, int count) {
    Words words;
    size_t room = 0;
    for (int at = 0; at < count; at++) room += strlen(given[at]) + 16;
    words_room(&words, (room + strlen(key) + 128) * BATCH);
    run->connections = 1;
    run_open(run);
    run_begin(run, 0);
    Link *link = run->links;
    for (long next = first; next <= last;) {
        words.size = 0;
        int batch = 0;
        for (; batch < BATCH && next <= last; batch++, next++) {
            char id[32];
            int length = snprintf(id, sizeof id, "%ld-1", next);
            words_begin(&words, 3 + count);
            words_add(&words, "XADD", 4);
            words_add(&words, key, (int)strlen(key));
            words_add(&words, id, length);
            for (int at = 0; at < count; at++) {
                int size = (int)strlen(given[at]);
                words_add(&words, given[at], size);
                char *copy = words.text + words.size - 2 - size;
                for (int byte = 0; byte < size; byte++)
                    if (copy[byte] == '#') copy[byte] = random_digit();
            }
        }
        link_send(link, words.text, words.size);
        for (link->awaited = batch; link->awaited; link_drop(link))
            link->awaited -= link_receive(link);
        histogram_add(&run->histogram, now_ns() - link->sent_ns, 1);
        run->operations += batch;
    }
}
