/* SPDX-License-Identifier: GPL-2.0 */
/* A server that lies, and how it says things. */
#ifndef LIAR_H
#define LIAR_H

#include "hub.h"
#include "numbers.h"
#include "rounds.h"
#include "wire.h"

#define QUEUE_DEPTH 16
#define MAX_IO (128 << 10)
#define MAX_HDR 4096
#define CHUNK_SIZE (MAX_IO + MAX_HDR)
#define LONGEST_HEADER 512
#define MOST_HELD 8

struct request {
	/* The number of its connection, which may be gone. */
	uint32_t connection;
	uint32_t chunk;
	uint8_t header[LONGEST_HEADER];
	uint32_t header_len;
	bool is_read, has_target, wants_invalidation;
	/* Where a read wants its data. */
	struct desc target;
};

struct answer {
	/* Data for the target; `zeroes` instead if it is NULL. */
	const void *data;
	uint32_t length;
	uint32_t error;
	bool invalidate, claim;
	/* NULL: the request's. */
	struct connection *connection;
};

struct liar {
	const struct round *round;
	struct hub hub;
	struct rdma_cm_id *listener;
	/* How many of a million messages are wrong in a way that the client bears, and in one that ends its path. */
	unsigned int lies, ends;
	/* How many decisions of each stream there were. */
	uint64_t decisions[KINDS + 1];
	struct memory chunks, zeroes;
	/* What the client believes of the chunks. */
	uint32_t queue_depth, chunk_size, mem_bits;
	uint32_t features, flags, offered;
	uint32_t doorbell;
	struct request held[MOST_HELD];
	unsigned int held_count;
	/* Responses that are to go out in one message. */
	uint32_t collected_for;
	uint16_t collected[MOST_COALESCED];
	unsigned int collected_count;
	/* When something was heard of the client last. */
	int64_t last;
};

/* The numbers of the next decision about messages of a kind. */
struct numbers decide(struct liar *liar, enum kind kind);
/* The connection that a request came by; NULL if it is gone. */
struct connection *connection_of(struct liar *liar, const struct request *request);
/* Any connection, or NULL. */
struct connection *any_connection(struct liar *liar, struct numbers *numbers);

/* Send an immediate alone. */
void say_immediate(struct connection *connection, uint32_t imm);
/* Send a message, with an immediate if `imm` is not 0. */
void say_message(struct liar *liar, struct connection *connection, const void *message, size_t length, uint32_t imm);
/* The response as it should be. */
struct answer right_answer(const struct request *request);
void say_answer(struct liar *liar, const struct request *request, const struct answer *answer);
/* Send the responses that were collected. */
void say_collected(struct liar *liar);

/* Respond, or lie. */
void answer_request(struct liar *liar, const struct request *request);
/* Respond to a request that was held back. */
void answer_held(struct liar *liar);
void answer_info(struct liar *liar, struct connection *connection);
void answer_heartbeat(struct liar *liar, struct connection *connection);
void answer_path_end(struct liar *liar, struct connection *connection, uint32_t number);
/* The response to a request for a connection. Returns its length; `accept` says whether it is one. */
size_t answer_connection(struct liar *liar, const struct conn_req *request, uint8_t *response, bool *accept);

#endif
