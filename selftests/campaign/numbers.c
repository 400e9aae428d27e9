// SPDX-License-Identifier: GPL-2.0
#include "numbers.h"

#include <string.h>

static uint64_t mixed(uint64_t value)
{
	value += 0x9e3779b97f4a7c15;
	value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
	value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
	return value ^ (value >> 31);
}

struct numbers numbers_of(uint64_t seed, uint64_t round, uint64_t stream, uint64_t index)
{
	return (struct numbers){ mixed(mixed(mixed(mixed(seed) ^ round) ^ stream) ^ index) };
}

uint64_t number(struct numbers *numbers)
{
	numbers->state += 0x9e3779b97f4a7c15;
	return mixed(numbers->state);
}

uint64_t below(struct numbers *numbers, uint64_t limit)
{
	return number(numbers) % limit;
}

bool likely(struct numbers *numbers, unsigned int of_a_million)
{
	return below(numbers, 1000000) < of_a_million;
}

uint64_t limit(struct numbers *numbers, unsigned int bits)
{
	uint64_t top = bits >= 64 ? UINT64_MAX : (1ULL << bits) - 1;
	uint64_t any = number(numbers), bit = 1ULL << below(numbers, bits);
	uint64_t values[] = {
		0, 0, 1, 2, 7, 512, 4096, top, top - 1, top >> 1, (top >> 1) + 1, any, bit,
	};

	return CHOICE(numbers, values) & top;
}

void junk(struct numbers *numbers, void *bytes, size_t length)
{
	uint8_t *to = bytes;

	for (size_t at = 0; at < length; at += sizeof(uint64_t)) {
		uint64_t value = number(numbers);
		size_t count = length - at < sizeof(value) ? length - at : sizeof(value);

		memcpy(to + at, &value, count);
	}
}

size_t spoil(struct numbers *numbers, uint8_t *bytes, size_t length, size_t room)
{
	static const size_t more[] = { 1, 4, 64 }, sizes[] = { 1, 2, 4, 8 };
	uint64_t how = below(numbers, 4);
	size_t size = CHOICE(numbers, sizes);
	uint64_t value;

	if (how == 0)
		return length ? below(numbers, length) : 0;
	if (how == 1) {
		size = CHOICE(numbers, more);
		if (size > room - length)
			size = room - length;
		junk(numbers, bytes + length, size);
		return length + size;
	}
	if (size > length)
		return length;
	value = limit(numbers, 8 * size);
	memcpy(bytes + below(numbers, length - size + 1), &value, size);
	return length;
}
