/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Rounds, several at a time, each in a process of its own: what a round does follows from the seed and its number.
 *
 * A process that ends, however it does, leaves its connections to the kernel to clean up. Counts and what went wrong
 * are in memory that all processes share.
 */
#ifndef ROUNDS_H
#define ROUNDS_H

#include <stdbool.h>
#include <stdint.h>

#define MOST_JOBS 16

/* What messages are counted as, and below OUTCOMES what became of them. */
enum kind {
	KIND_CONNECT, KIND_INFO, KIND_SESS_INFO, KIND_OPEN, KIND_IO, KIND_CLOSE, KIND_NEWS, KIND_HOST,
	KIND_RESERVATION, KIND_DISCOVER, KIND_JUNK, KIND_IMMEDIATE, KIND_SEND, KIND_WRITE, KIND_KEY, KIND_COALESCED,
	KIND_HEARTBEAT, KIND_DOORBELL, KIND_PATH_END, KIND_DISCONNECT,
	OUTCOMES,
	OUTCOME_ESTABLISHED = OUTCOMES, OUTCOME_CARRIED_OUT, OUTCOME_REFUSED, OUTCOME_LOST,
	KINDS,
};

struct options {
	/* Of the server, or of the client's own end; the second one is an IPv6 address, or NULL. */
	const char *address, *address6;
	uint16_t port;
	uint64_t seed;
	/* The first round, how many at most, how many messages, how long in ms; 0: any number. */
	uint64_t first, rounds, messages;
	int64_t milliseconds;
	unsigned int jobs;
	/* A disk for each round at a time, or none. */
	const char *disks[MOST_JOBS];
	/* Print each message. */
	bool trace;
};

struct round {
	const struct options *options;
	uint64_t number;
	/* Which of those at a time. */
	unsigned int slot;
};

struct campaign {
	const char *name;
	/* One round, in a process of its own; false if a peer did what it must not, see problem(). */
	bool (*run)(const struct round *round);
	/* The file that is there as long as something of a round is. */
	void (*left)(const struct round *round, char *path, unsigned long room);
};

/* Run rounds; prints what was sent as JSON. Returns the program's exit code. */
int run_campaign(const struct campaign *campaign, const struct options *options);

/* For rounds. */

/* One more message, or outcome. */
void count(enum kind kind);
/* Whether the round is to come to its end, as the campaign is over. */
bool is_over(void);
/* Say what went wrong; returns false. */
bool problem(const struct round *round, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Print a line if messages are to be printed. */
void trace(const struct round *round, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
