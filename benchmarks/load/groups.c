/* Consumers of a group: at full speed, or blocked until entries arrive at a steady rate. */
#define _GNU_SOURCE /* memmem */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

enum { MOST_IDS = 10000, READ, SETTLE, REWIND };

static const char *stream, *group, *way;
static int count;
static Words words;

/* When all entries are read, one link sets the group back to the stream's beginning. Links that had
 * asked before that must not do so too: entries that were read again would be delivered twice. */
static int generation, rewinding;

static void ask_for_entries(Link *link, int number, int blocked) {
    char consumer[32], most[16];
    snprintf(consumer, sizeof consumer, "c%d", number);
    snprintf(most, sizeof most, "%d", count);
    const char *claimed[] = {"XREADGROUP", "GROUP", group, consumer, "CLAIM", "60000",
                             "COUNT", most, "STREAMS", stream, ">"};
    const char *waiting[] = {"XREADGROUP", "GROUP", group, consumer, "BLOCK", "0",
                             "COUNT", most, "STREAMS", stream, ">"};
    const char *plain[] = {"XREADGROUP", "GROUP", group, consumer,
                           "COUNT", most, "STREAMS", stream, ">"};
    if (blocked) words_list(&words, 11, waiting, 11);
    else if (!strcmp(way, "claim")) words_list(&words, 11, claimed, 11);
    else words_list(&words, 9, plain, 9);
    link->turn = READ;
    link->generation = generation;
    link_send(link, words.text, words.size);
}

static void rewind_group(Link *link) {
    const char *rewind[] = {"XGROUP", "SETID", stream, group, "0"};
    words_list(&words, 5, rewind, 5);
    link->turn = REWIND;
    rewinding = 1;
    link_send(link, words.text, words.size);
}

/* Acknowledges the entries of a reply, and returns their number. */
static int settle(Link *link, int number) {
    static Id ids[MOST_IDS];
    char consumer[32], total[16];
    int found = reply_ids(link->data, link->size, ids, MOST_IDS);
    if (found <= 0) return 0;
    snprintf(consumer, sizeof consumer, "c%d", number);
    snprintf(total, sizeof total, "%d", found);
    const char *ack[] = {"XACK", stream, group};
    const char *settled[] = {"XSETTLE", stream, group, consumer, "ACK", "IDS", total};
    if (!strcmp(way, "ack")) words_list(&words, 3 + found, ack, 3);
    else words_list(&words, 7 + found, settled, 7);
    for (int at = 0; at < found; at++) words_add(&words, ids[at].text, ids[at].length);
    link->turn = SETTLE;
    link->found = found;
    link_send(link, words.text, words.size);
    return found;
}

/* Checks that all entries that were read were acknowledged; otherwise the measurement is wrong. */
static int settled(Link *link) {
    if (reply_sum(link->data, link->size) != link->found)
        fail("fewer entries were acknowledged than were read");
    return link->found;
}

static void consume_next(Run *run, Link *link, int number) {
    switch (link->turn) {
    case READ:
        if (settle(link, number)) break;
        if (rewinding || link->generation != generation) ask_for_entries(link, number, 0);
        else rewind_group(link);
        break;
    case SETTLE:
        run->operations += settled(link);
        ask_for_entries(link, number, 0);
        break;
    case REWIND:
        rewinding = 0;
        generation++;
        ask_for_entries(link, number, 0);
        break;
    }
    link_drop(link);
}

void consume(Run *run, double seconds, int most, const char *how, const char *key,
             const char *name) {
    struct epoll_event events[EVENTS];
    count = most, way = how, stream = key, group = name;
    if (strcmp(way, "ack") && strcmp(way, "settle") && strcmp(way, "claim")) fail("unknown way to acknowledge");
    if (count > MOST_IDS) fail("COUNT is too large");
    words_room(&words, 1 << 20);
    run_open(run);
    run_begin(run, seconds);
    for (int at = 0; at < run->connections; at++) ask_for_entries(&run->links[at], at, 0);
    while (run_goes_on(run)) {
        int ready = run_wait(run, events, 100);
        for (int at = 0; at < ready; at++) {
            int number = events[at].data.u32;
            Link *link = &run->links[number];
            if (!link_receive(link)) continue;
            histogram_add(&run->histogram, now_ns() - link->sent_ns, 1);
            consume_next(run, link, number);
        }
    }
}

/* --- deliver --------------------------------------------------------------------------------------- */

#define MOMENT "$24\r\n" /* the header of an entry's value; an id never has this length */

static void add_entry(Link *adder, int64_t due) {
    char moment[32];
    snprintf(moment, sizeof moment, "%024lld", (long long)due);
    const char *add[] = {"XADD", stream, "MAXLEN", "~", "100000", "*", "at", moment};
    words_list(&words, 8, add, 8);
    link_send(adder, words.text, words.size);
}

static void deliver_next(Run *run, Link *link, int number) {
    int64_t here = now_ns();
    if (link->turn == READ) {
        const char *found = link->data, *behind = found + link->size;
        while ((found = memmem(found, behind - found, MOMENT, sizeof MOMENT - 1))) {
            found += sizeof MOMENT - 1;
            histogram_add(&run->histogram, here - strtoll(found, NULL, 10), 1);
        }
        if (!settle(link, number)) fail("a blocked reader got a reply without an entry");
    } else {
        run->operations += settled(link);
        ask_for_entries(link, number, 1);
    }
    link_drop(link);
}

/* The last link adds entries, the others are blocked. An entry contains the time at which it was due to
 * be sent, so if the server pauses, all delayed entries count with their full delay. */
void deliver(Run *run, double seconds, int rate, const char *key, const char *name) {
    struct epoll_event events[EVENTS];
    count = 100, way = "ack", stream = key, group = name;
    words_room(&words, 1 << 20);
    int consumers = run->connections++;
    run_open(run);
    run_begin(run, seconds);
    Link *adder = &run->links[consumers];
    int64_t step = 1000000000 / rate, due = now_ns();
    for (int at = 0; at < consumers; at++) ask_for_entries(&run->links[at], at, 1);
    while (run_goes_on(run)) {
        for (; due <= now_ns(); due += step) add_entry(adder, due);
        int ready = run_wait(run, events, 0);
        for (int at = 0; at < ready; at++) {
            int number = events[at].data.u32;
            Link *link = &run->links[number];
            if (!link_receive(link)) continue;
            if (link == adder) link_drop(link);
            else deliver_next(run, link, number);
        }
    }
}
