/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The numbers that decide what a round does.
 *
 * Each decision has numbers of its own: they follow from the seed, the round, what the decision is about (the stream)
 * and which of its kind it is. So a decision does not depend on when other messages come.
 */
#ifndef NUMBERS_H
#define NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct numbers {
	uint64_t state;
};

/* The numbers of decision `index` of a stream. */
struct numbers numbers_of(uint64_t seed, uint64_t round, uint64_t stream, uint64_t index);

/* The next number, of 64 bits. */
uint64_t number(struct numbers *numbers);

/* A number below `limit`, which is not 0. */
uint64_t below(struct numbers *numbers, uint64_t limit);

/* True so many times of a million. */
bool likely(struct numbers *numbers, unsigned int of_a_million);

/* A number of 1 to 64 bits, likely one at a limit. */
uint64_t limit(struct numbers *numbers, unsigned int bits);

/* Fill bytes. */
void junk(struct numbers *numbers, void *bytes, size_t length);

/*
 * Make a message wrong in a place: cut, longer, or with another field. There is `room` for it, at least its length.
 * Returns its new length.
 */
size_t spoil(struct numbers *numbers, uint8_t *bytes, size_t length, size_t room);

/* One of the values of an array. */
#define CHOICE(numbers, values) ((values)[below(numbers, sizeof(values) / sizeof((values)[0]))])

#endif
