// SPDX-License-Identifier: GPL-2.0
#include "user.h"

#include <string.h>

#include "wire.h"

#define PAGE 4096
/* Of the disks, in sectors of 512 bytes; some bytes before the end. */
#define SECTORS ((60U << 20) / SECTOR)
#define FUA 0x200
#define SYNC 0x100
#define PREFLUSH 0x400
#define NO_UNMAP 0x800
#define NOT_FOUND "/dev/there-is-no-such-disk"

static void set_header(struct message *message, const void *header, size_t length)
{
	memcpy(message->header, header, length);
	message->header_len = length;
}

static void ask(struct message *message, const void *header, size_t length)
{
	set_header(message, header, length);
	message->is_read = true;
	message->room = ROOM_FOR_RESPONSE;
}

static uint32_t device(struct user *user, struct numbers *numbers, bool lies)
{
	uint32_t values[] = { 0, 1, 2, user->device_id + 1, limit(numbers, 32) };

	return lies && likely(numbers, 300000) ? CHOICE(numbers, values) : user->device_id;
}

static void sess_info(struct user *user, struct numbers *numbers, bool lies, struct message *message)
{
	struct sess_info header = {
		.hdr.type = RNBD_SESS_INFO, .ver = 2, .magic = RNBX_MAGIC, .features = ALL_RNBD_FEATURES,
		.nonce = number(numbers),
	};

	(void)user;
	if (lies) {
		header.ver = limit(numbers, 8);
		header.features = limit(numbers, 32);
	}
	message->kind = KIND_SESS_INFO;
	ask(message, &header, sizeof(header));
}

static void open_disk(struct user *user, struct numbers *numbers, bool lies, struct message *message)
{
	const char *others[] = {
		"/dev/null", "/", "/dev/../dev/null", "/etc/passwd", NOT_FOUND, "", "/dev/vdb", user->disk,
	};
	struct open_msg header = { .hdr.type = RNBD_OPEN, .access_mode = 1 };
	const char *name = user->disk;

	if (lies) {
		name = CHOICE(numbers, others);
		header.access_mode = below(numbers, 4) ? below(numbers, 3) : limit(numbers, 8);
		header.io_mode = below(numbers, 2) ? 0 : limit(numbers, 8);
	}
	strncpy(header.name, name, sizeof(header.name) - 1);
	if (lies && likely(numbers, 100000))
		memset(header.name, 'x', sizeof(header.name) - below(numbers, 2));
	message->kind = KIND_OPEN;
	ask(message, &header, sizeof(header));
}

static uint32_t flags_of(struct numbers *numbers, uint32_t operation)
{
	static const uint32_t writes[] = { 0, 0, 0, FUA, SYNC, PREFLUSH, FUA | PREFLUSH };

	if (operation == OP_WRITE)
		return CHOICE(numbers, writes);
	return operation == OP_WRITE_ZEROES && below(numbers, 2) ? NO_UNMAP : 0;
}

static void io(struct user *user, struct numbers *numbers, bool lies, struct message *message)
{
	static const uint32_t operations[] = {
		OP_READ, OP_READ, OP_READ, OP_READ, OP_WRITE, OP_WRITE, OP_WRITE, OP_WRITE, OP_FLUSH, OP_DISCARD,
		OP_WRITE_ZEROES, OP_SECURE_ERASE,
	};
	static const uint32_t lengths[] = { 512, 512, 1024, PAGE, PAGE, PAGE, 2 * PAGE };
	uint32_t operation = CHOICE(numbers, operations), length = CHOICE(numbers, lengths);
	struct io_msg header = { .hdr.type = RNBD_IO, .device_id = device(user, numbers, lies) };

	if (likely(numbers, 5000))
		length = 16 * PAGE;
	header.sector = below(numbers, SECTORS / 8) * 8;
	header.rw = operation | flags_of(numbers, operation);
	header.bi_size = operation == OP_FLUSH ? 0 : length;
	header.prio = below(numbers, 4) ? 0 : limit(numbers, 16);
	message->kind = KIND_IO;
	message->is_read = operation == OP_READ || operation == OP_FLUSH;
	message->room = operation == OP_READ ? length : 0;
	message->data_len = operation == OP_WRITE ? length : 0;
	if (lies) {
		switch (below(numbers, 6)) {
		case 0:
			header.sector = limit(numbers, 64);
			break;
		case 1:
			header.bi_size = limit(numbers, 32);
			break;
		case 2:
			header.rw = limit(numbers, 8) | limit(numbers, 24) << 8;
			break;
		case 3:
			message->is_read = !message->is_read;
			break;
		case 4:
			message->data_len = below(numbers, 2 * PAGE);
			break;
		}
	}
	set_header(message, &header, sizeof(header) - (below(numbers, 8) ? 0 : sizeof(header) - 24));
}

static void close_disk(struct user *user, struct numbers *numbers, bool lies, struct message *message)
{
	struct close_msg header = { .hdr.type = RNBD_CLOSE, .device_id = device(user, numbers, lies) };

	message->kind = KIND_CLOSE;
	set_header(message, &header, sizeof(header));
}

static void news(struct user *user, struct numbers *numbers, bool lies, struct message *message)
{
	struct news_msg header = { .hdr.type = RNBD_NEWS, .since = below(numbers, 3) };

	(void)user;
	if (lies) {
		header.since = limit(numbers, 32);
		header.first_device_id = limit(numbers, 32);
	}
	message->kind = KIND_NEWS;
	ask(message, &header, sizeof(header));
}

static void host(struct user *user, struct numbers *numbers, bool lies, struct message *message)
{
	struct host_msg header = { .hdr.type = RNBD_HOST };

	/* The same name as before, so that it is not refused. */
	memset(header.uuid, 0x55, sizeof(header.uuid));
	strncpy((char *)header.uuid, user->disk, sizeof(header.uuid) - 1);
	if (lies)
		junk(numbers, header.uuid, below(numbers, sizeof(header.uuid) + 1));
	message->kind = KIND_HOST;
	set_header(message, &header, sizeof(header));
}

static void reservation(struct user *user, struct numbers *numbers, bool lies, struct message *message)
{
	struct reservation_msg header = {
		.hdr.type = RNBD_RESERVATION, .device_id = device(user, numbers, lies), .action = below(numbers, 7),
		.kind = 1 + below(numbers, 6), .sequence = number(numbers), .key = below(numbers, 3),
		.service_key = below(numbers, 3),
	};

	/* Register, whatever key there is: most other actions need a key. */
	header.flags = header.action == 0 && below(numbers, 2);
	if (lies) {
		header.action = limit(numbers, 8);
		header.kind = limit(numbers, 8);
		header.flags = limit(numbers, 16);
		header.sequence = limit(numbers, 32);
		header.key = limit(numbers, 64);
	}
	message->kind = KIND_RESERVATION;
	if (header.action == 6)
		ask(message, &header, sizeof(header));
	else
		set_header(message, &header, sizeof(header));
}

static void discover(struct user *user, struct numbers *numbers, bool lies, struct message *message)
{
	static const char *const others[] = { "dev/vda", "z", "a/b/c/d/e/f/g/h", "../x", "/", "" };
	struct discover_msg header = { .hdr.type = RNBD_DISCOVER };

	(void)user;
	if (lies)
		strncpy(header.after, CHOICE(numbers, others), sizeof(header.after) - 1);
	if (lies && likely(numbers, 100000))
		memset(header.after, 'x', sizeof(header.after) - below(numbers, 2));
	message->kind = KIND_DISCOVER;
	ask(message, &header, sizeof(header));
}

static void no_message(struct user *user, struct numbers *numbers, bool lies, struct message *message)
{
	static const uint32_t lengths[] = { 0, 1, 4, 64, 300 };

	(void)user;
	(void)lies;
	message->kind = KIND_JUNK;
	message->header_len = CHOICE(numbers, lengths);
	message->is_read = below(numbers, 2);
	message->room = ROOM_FOR_RESPONSE;
	junk(numbers, message->header, message->header_len);
	/* A type that there is, most often. */
	if (message->header_len >= 4 && below(numbers, 4))
		memcpy(message->header, (uint16_t[]){ below(numbers, 14), 0 }, 4);
}

static void (*const kinds[])(struct user *, struct numbers *, bool, struct message *) = {
	io, io, io, io, io, io, io, io, io, io, io, io, io, io, io, io, io, io, io, io, io, io, io, io, io, io, io, io,
	sess_info, open_disk, open_disk, open_disk, close_disk, news, news, host, reservation, reservation, reservation,
	discover, no_message,
};

void first_message(struct user *user, struct numbers *numbers, unsigned int which, struct message *message)
{
	static void (*const first[FIRST_MESSAGES])(struct user *, struct numbers *, bool, struct message *) = {
		sess_info, host, open_disk,
	};

	memset(message, 0, sizeof(*message));
	first[which](user, numbers, false, message);
}

void any_message(struct user *user, struct numbers *numbers, bool lies, struct message *message)
{
	memset(message, 0, sizeof(*message));
	CHOICE(numbers, kinds)(user, numbers, lies && likely(numbers, 700000), message);
	if (lies && likely(numbers, 400000))
		message->header_len = spoil(numbers, message->header, message->header_len, sizeof(message->header));
}
