/* SPDX-License-Identifier: GPL-2.0 */
/* The messages of a block driver's client, right or wrong in a place. */
#ifndef USER_H
#define USER_H

#include "numbers.h"
#include "rounds.h"

#define LONGEST_HEADER 512
#define ROOM_FOR_RESPONSE 4096

struct message {
	enum kind kind;
	uint8_t header[LONGEST_HEADER];
	uint32_t header_len;
	/* Whether it is sent as a transport read, for a response of so many bytes; 0: without a descriptor. */
	bool is_read;
	uint32_t room;
	/* The data of a write, in bytes. */
	uint32_t data_len;
};

struct user {
	const char *disk;
	/* The number of the open device, as far as it is known. */
	uint32_t device_id;
};

/* What every client says first: session information, the machine's name, and the opening of the disk. */
#define FIRST_MESSAGES 3
void first_message(struct user *user, struct numbers *numbers, unsigned int which, struct message *message);
/* Any message; `lies`: wrong in a place, perhaps. */
void any_message(struct user *user, struct numbers *numbers, bool lies, struct message *message);

#endif
