// SPDX-License-Identifier: GPL-2.0
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "liar.h"

#define PAGE 4096
/* The disk that is offered, and the disks that there are to be found. */
#define DISK_SECTORS 2048
#define DEVICE_ID 7
#define MOST_DISKS 100
#define DISKS_AT_ONCE 30

static const uint32_t odd_kinds[] = { IO_REQ, IO_RSPS, PATH_END, PATH_ENDED, DOORBELL, 7, HB_MSG, HB_ACK, 10, 15 };

size_t answer_connection(struct liar *liar, const struct conn_req *request, uint8_t *response, bool *accept)
{
	struct numbers numbers = decide(liar, KIND_CONNECT);
	struct conn_rsp right = {
		.magic = RTRS_MAGIC, .version = RTRS_VERSION, .queue_depth = QUEUE_DEPTH, .max_io_size = MAX_IO,
		.max_hdr_size = MAX_HDR, .flags = liar->flags, .features = liar->offered & request->features,
	};
	size_t length = sizeof(right);
	uint32_t most;

	count(KIND_CONNECT);
	*accept = true;
	memcpy(response, &right, sizeof(right));
	if (likely(&numbers, liar->lies / 2)) {
		length = spoil(&numbers, response, length, PRIVATE_DATA - 120);
		*accept = below(&numbers, 5) != 0;
	}
	if (request->cid != 0 || length < sizeof(right))
		return length;
	memcpy(&right, response, sizeof(right));
	liar->features = right.features & request->features;
	liar->queue_depth = right.queue_depth ? right.queue_depth : 1;
	liar->chunk_size = right.max_io_size + right.max_hdr_size;
	most = liar->queue_depth - 1;
	liar->mem_bits = PAYLOAD_BITS - (most ? 32 - __builtin_clz(most) : 0);
	return length;
}

void answer_info(struct liar *liar, struct connection *connection)
{
	struct numbers numbers = decide(liar, KIND_INFO);
	uint64_t whole = QUEUE_DEPTH * CHUNK_SIZE;
	struct {
		struct info_rsp info;
		struct desc desc[2 * QUEUE_DEPTH + 8];
	} __attribute__((packed)) message = { .info = { .type = INFO_RSP, .sg_cnt = 1 } };
	size_t length;

	count(KIND_INFO);
	/* One for all chunks, or one for each. */
	if (below(&numbers, 2))
		message.info.sg_cnt = QUEUE_DEPTH;
	for (uint32_t at = 0; at < message.info.sg_cnt; at++)
		message.desc[at] = (struct desc){
			(uintptr_t)liar->chunks.bytes + at * CHUNK_SIZE, liar->chunks.mr->rkey,
			message.info.sg_cnt == 1 ? whole : CHUNK_SIZE,
		};
	length = sizeof(message.info) + message.info.sg_cnt * sizeof(message.desc[0]);
	if (likely(&numbers, liar->lies)) {
		struct desc *desc = &message.desc[below(&numbers, message.info.sg_cnt)];

		switch (below(&numbers, 4)) {
		case 0:
			desc->addr = limit(&numbers, 64);
			break;
		case 1:
			desc->key = limit(&numbers, 32);
			break;
		case 2:
			desc->len = limit(&numbers, 32);
			break;
		default:
			length = spoil(&numbers, (uint8_t *)&message, length, sizeof(message));
		}
	}
	say_message(liar, connection, &message, length, 0);
	if (likely(&numbers, liar->ends))
		say_message(liar, connection, &message, length, 0);
}

void answer_heartbeat(struct liar *liar, struct connection *connection)
{
	static const unsigned int times[] = { 0, 2, 5, 50 };
	struct numbers numbers = decide(liar, KIND_HEARTBEAT);
	unsigned int left = likely(&numbers, liar->lies) ? CHOICE(&numbers, times) : 1;

	for (; left; left--) {
		count(KIND_HEARTBEAT);
		say_immediate(connection, IMM(left > 1 && below(&numbers, 2) ? HB_MSG : HB_ACK, 0));
	}
}

void answer_path_end(struct liar *liar, struct connection *connection, uint32_t number)
{
	struct numbers numbers = decide(liar, KIND_PATH_END);
	uint32_t other;

	count(KIND_PATH_END);
	if (likely(&numbers, liar->lies)) {
		other = below(&numbers, 2) ? number + 1 : limit(&numbers, PAYLOAD_BITS);
		say_immediate(connection, IMM(PATH_ENDED, other));
		if (below(&numbers, 4) == 0)
			return;
	}
	say_immediate(connection, IMM(PATH_ENDED, number));
}

static size_t session_info(struct liar *liar, const struct request *request, struct numbers *numbers, uint8_t *to)
{
	struct sess_info response = { .hdr.type = RNBD_SESS_INFO + 1, .ver = 2 }, asked;

	(void)liar;
	(void)numbers;
	memset(&asked, 0, sizeof(asked));
	memcpy(&asked, request->header,
	       request->header_len < sizeof(asked) ? request->header_len : sizeof(asked));
	response.magic = asked.magic;
	response.features = asked.features;
	response.nonce = asked.nonce;
	memcpy(to, &response, sizeof(response));
	return sizeof(response);
}

static size_t opened(struct liar *liar, const struct request *request, struct numbers *numbers, uint8_t *to)
{
	struct open_rsp response = {
		.hdr.type = RNBD_OPEN + 1, .device_id = DEVICE_ID, .nsectors = DISK_SECTORS, .max_hw_sectors = 256,
		.max_write_zeroes_sectors = 256, .max_discard_sectors = 256, .discard_granularity = PAGE,
		.physical_block_size = SECTOR, .logical_block_size = SECTOR, .max_segments = 32, .secure_discard = 1,
		.cache_policy = 3, .io_mode = 1, .wwid = "naa.5000",
	};

	(void)liar;
	(void)request;
	(void)numbers;
	memcpy(to, &response, sizeof(response));
	return sizeof(response);
}

static size_t told(struct liar *liar, const struct request *request, struct numbers *numbers, uint8_t *to)
{
	static const uint32_t flags[] = { 0, 0, 0, 1, 2, 4, 8, 16, 32 };
	struct news_rsp response = { .hdr.type = RNBD_NEWS + 1, .sequence = liar->doorbell, .count = 1 };
	struct news_record record = {
		.device_id = DEVICE_ID, .nsectors = DISK_SECTORS, .max_hw_sectors = 256, .physical_block_size = SECTOR,
		.logical_block_size = SECTOR, .max_segments = 32, .max_discard_sectors = 256,
		.discard_granularity = PAGE,
	};

	(void)request;
	/* Few disks are removed, or closed: that is for good. */
	if (likely(numbers, liar->lies)) {
		record.flags = CHOICE(numbers, flags);
		record.nsectors = below(numbers, 2) ? DISK_SECTORS : limit(numbers, 64);
		record.close_reason = record.flags == 32 ? below(numbers, 4) : 0;
		record.max_discard_sectors = record.flags == 32 ? 0 : limit(numbers, 32);
		if (below(numbers, 8) == 0) {
			response.flags = 2;
			response.drain_ms = 1 + below(numbers, 3000);
		}
	}
	memcpy(to, &response, sizeof(response));
	memcpy(to + sizeof(response), &record, sizeof(record));
	return sizeof(response) + sizeof(record);
}

static size_t reported(struct liar *liar, const struct request *request, struct numbers *numbers, uint8_t *to)
{
	struct reservation_rsp response = { .hdr.type = RNBD_RESERVATION + 1 };

	(void)liar;
	(void)request;
	response.generation = below(numbers, 100);
	response.count = below(numbers, 3);
	response.keys[0] = 1;
	response.keys[1] = 2;
	memcpy(to, &response, sizeof(response));
	return sizeof(response);
}

static size_t found(struct liar *liar, const struct request *request, struct numbers *numbers, uint8_t *to)
{
	struct discover_rsp response = { .hdr.type = RNBD_DISCOVER + 1 };
	struct discover_disk disk = { .nsectors = 8, .logical_block_size = SECTOR, .modes = 7 };
	char after[NAME_SIZE + 1] = "", path[16];
	size_t length = sizeof(response);
	unsigned long number;

	if (request->header_len > sizeof(struct hdr))
		memcpy(after, request->header + sizeof(struct hdr),
		       request->header_len < NAME_SIZE ? request->header_len - sizeof(struct hdr) : NAME_SIZE);
	number = strtoul(after, NULL, 10);
	if (number > MOST_DISKS)
		number = MOST_DISKS;
	for (; number < MOST_DISKS && response.count < DISKS_AT_ONCE; response.count++) {
		disk.path_len = snprintf(path, sizeof(path), "%06lu", ++number);
		memcpy(to + length, &disk, sizeof(disk));
		memcpy(to + length + sizeof(disk), path, disk.path_len);
		length += sizeof(disk) + disk.path_len;
	}
	response.flags = number < MOST_DISKS;
	if (likely(numbers, liar->lies)) {
		response.count += below(numbers, 3);
		response.flags = limit(numbers, 16);
	}
	memcpy(to, &response, sizeof(response));
	return length;
}

/* What is said to a message of the block driver that is no IO. */
static const struct {
	uint16_t type;
	enum kind kind;
	size_t (*say)(struct liar *, const struct request *, struct numbers *, uint8_t *);
} controls[] = {
	{ RNBD_SESS_INFO, KIND_SESS_INFO, session_info }, { RNBD_OPEN, KIND_OPEN, opened },
	{ RNBD_CLOSE, KIND_CLOSE, NULL }, { RNBD_NEWS, KIND_NEWS, told }, { RNBD_HOST, KIND_HOST, NULL },
	{ RNBD_RESERVATION, KIND_RESERVATION, reported }, { RNBD_DISCOVER, KIND_DISCOVER, found },
};

static bool hold(struct liar *liar, const struct request *request)
{
	if (liar->held_count == MOST_HELD)
		return false;
	liar->held[liar->held_count++] = *request;
	return true;
}

static void answer_control(struct liar *liar, const struct request *request, size_t which)
{
	struct numbers numbers = decide(liar, controls[which].kind);
	struct answer answer = right_answer(request);
	uint8_t data[PAGE] = { 0 };

	count(controls[which].kind);
	if (controls[which].say && request->has_target)
		answer.length = controls[which].say(liar, request, &numbers, data);
	answer.data = data;
	if (likely(&numbers, liar->lies)) {
		switch (below(&numbers, 8)) {
		case 0:
			answer.error = limit(&numbers, 9);
			break;
		case 1:
			if (hold(liar, request))
				return;
			break;
		case 2:
			say_answer(liar, request, &answer);
			break;
		default:
			answer.length = spoil(&numbers, data, answer.length, sizeof(data));
		}
	}
	say_answer(liar, request, &answer);
}

/* A wrong response to IO, which the client bears; false if the right one is still to be given. */
static bool lie_about_io(struct liar *liar, const struct request *request, struct numbers *numbers)
{
	static const uint32_t lengths[] = { 0, 1, SECTOR };
	struct connection *connection = connection_of(liar, request);
	struct answer answer = right_answer(request);
	uint32_t any = limit(numbers, PAYLOAD_BITS);

	answer.length = request->target.len;
	switch (below(numbers, 8)) {
	case 0:
		answer.error = limit(numbers, 9);
		break;
	case 1:
		answer.length = CHOICE(numbers, lengths);
		break;
	case 2:
		say_answer(liar, request, &answer);
		say_immediate(connection, IMM(IO_RSP, request->chunk));
		return true;
	case 3:
		count(KIND_IMMEDIATE);
		say_immediate(connection, IMM(CHOICE(numbers, odd_kinds), any));
		return false;
	case 4:
		answer.invalidate = below(numbers, 2);
		answer.claim = below(numbers, 2);
		break;
	case 5:
		return hold(liar, request);
	case 6:
		connection = any_connection(liar, numbers);
		count(KIND_DOORBELL);
		if (connection)
			say_immediate(connection, IMM(DOORBELL, below(numbers, 2) ? ++liar->doorbell : any));
		return false;
	default:
		/* To a request that is not in flight. */
		count(KIND_IMMEDIATE);
		say_immediate(connection, IMM(IO_RSP, liar->queue_depth + below(numbers, 100)));
		return false;
	}
	say_answer(liar, request, &answer);
	return true;
}

static void odd_list(struct liar *liar, struct connection *connection, struct numbers *numbers)
{
	uint16_t list[MOST_COALESCED + 8];
	size_t number = below(numbers, MOST_COALESCED + 2);

	for (size_t at = 0; at < number; at++)
		list[at] = below(numbers, 2) ? below(numbers, QUEUE_DEPTH) : limit(numbers, 16);
	count(KIND_COALESCED);
	say_message(liar, connection, list, number * sizeof(list[0]),
		    IMM(IO_RSPS, below(numbers, 4) ? number : limit(numbers, PAYLOAD_BITS)));
}

/* Close all connections. */
static void disconnect_all(struct liar *liar)
{
	count(KIND_DISCONNECT);
	for (size_t at = 0; at < MOST_CONNECTIONS; at++)
		if (liar->hub.connections[at])
			rdma_disconnect(liar->hub.connections[at]->id);
}

/* What ends the path, most likely; the response follows in any case. */
static void end_path(struct liar *liar, const struct request *request, struct numbers *numbers)
{
	struct rkey_rsp key = { RKEY_RSP, request->chunk, limit(numbers, 32) };
	struct connection *connection = connection_of(liar, request);
	struct answer answer = right_answer(request);
	struct request other = *request;
	uint8_t bytes[sizeof(key) + 64];
	size_t length;

	answer.length = request->target.len;
	switch (below(numbers, 10)) {
	case 0:
		odd_list(liar, connection, numbers);
		break;
	case 1:
		count(KIND_KEY);
		memcpy(bytes, &key, sizeof(key));
		length = spoil(numbers, bytes, sizeof(key), sizeof(bytes));
		say_message(liar, connection, bytes, length, IMM(IO_RSP, request->chunk));
		break;
	case 2:
		count(KIND_SEND);
		junk(numbers, bytes, sizeof(bytes));
		say_message(liar, connection, bytes, below(numbers, sizeof(bytes)), limit(numbers, 32));
		break;
	case 3:
		answer.connection = any_connection(liar, numbers);
		say_answer(liar, request, &answer);
		break;
	case 4:
		/* The key of nothing, or of something else. */
		other.target.key = limit(numbers, 32);
		other.has_target = answer.invalidate = true;
		answer.length = 0;
		say_answer(liar, &other, &answer);
		break;
	case 5:
		count(KIND_DISCONNECT);
		connection = any_connection(liar, numbers);
		if (connection)
			rdma_disconnect(connection->id);
		break;
	case 6:
		count(KIND_IMMEDIATE);
		say_immediate(connection, limit(numbers, 32));
		break;
	case 7:
		other.target.addr += limit(numbers, 48);
		other.target.key = below(numbers, 2) ? other.target.key : limit(numbers, 32);
		say_answer(liar, &other, &answer);
		break;
	case 8:
		/* The data once more, when the client does not expect it. */
		say_answer(liar, request, &answer);
		count(KIND_WRITE);
		say_answer(liar, request, &answer);
		break;
	default:
		disconnect_all(liar);
	}
}

static bool collect(struct liar *liar, const struct request *request, struct numbers *numbers)
{
	bool may = (liar->features & COALESCED_RESPONSES) && !(liar->flags & NEW_RKEY) && !request->has_target;

	if (!may || below(numbers, 2))
		return false;
	if (liar->collected_count &&
	    (liar->collected_for != request->connection || liar->collected_count == MOST_COALESCED))
		say_collected(liar);
	liar->collected_for = request->connection;
	liar->collected[liar->collected_count++] = request->chunk;
	return true;
}

void answer_request(struct liar *liar, const struct request *request)
{
	struct answer answer = right_answer(request);
	struct numbers numbers;
	uint16_t type = 0xffff;

	if (request->header_len >= sizeof(type))
		memcpy(&type, request->header, sizeof(type));
	for (size_t at = 0; at < sizeof(controls) / sizeof(controls[0]); at++)
		if (controls[at].type == type) {
			answer_control(liar, request, at);
			return;
		}
	numbers = decide(liar, KIND_IO);
	count(KIND_IO);
	if (liar->held_count && below(&numbers, 8) == 0)
		answer_held(liar);
	if (likely(&numbers, liar->ends))
		end_path(liar, request, &numbers);
	else if (likely(&numbers, liar->lies) && lie_about_io(liar, request, &numbers))
		return;
	if (collect(liar, request, &numbers))
		return;
	answer.length = request->target.len;
	say_answer(liar, request, &answer);
}

void answer_held(struct liar *liar)
{
	struct request request = liar->held[0];
	struct answer answer = right_answer(&request);

	liar->held_count--;
	memmove(liar->held, liar->held + 1, liar->held_count * sizeof(request));
	/* Also a message that wants more than zeroes: the response makes no sense then. */
	answer.length = request.target.len;
	say_answer(liar, &request, &answer);
}
