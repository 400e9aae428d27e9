// SPDX-License-Identifier: GPL-2.0
#include <arpa/inet.h>
#include <string.h>

#include "liar.h"

struct numbers decide(struct liar *liar, enum kind kind)
{
	return numbers_of(liar->round->options->seed, liar->round->number, kind + 1, liar->decisions[kind]++);
}

struct connection *connection_of(struct liar *liar, const struct request *request)
{
	struct connection *connection = liar->hub.connections[request->connection % MOST_CONNECTIONS];

	return connection && connection->number == request->connection ? connection : NULL;
}

struct connection *any_connection(struct liar *liar, struct numbers *numbers)
{
	uint64_t first = below(numbers, MOST_CONNECTIONS);

	for (uint64_t at = 0; at < MOST_CONNECTIONS; at++) {
		struct connection *connection = liar->hub.connections[(first + at) % MOST_CONNECTIONS];

		if (connection && connection->established && !connection->gone)
			return connection;
	}
	return NULL;
}

void say_immediate(struct connection *connection, uint32_t imm)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = htonl(imm) };

	connection_send(connection, &wr, NULL);
}

void say_message(struct liar *liar, struct connection *connection, const void *message, size_t length, uint32_t imm)
{
	struct ibv_send_wr wr = { .opcode = imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, .imm_data = htonl(imm) };
	struct ibv_sge sge;

	memcpy(hub_room(&liar->hub, length, &sge), message, length);
	connection_send(connection, &wr, length ? &sge : NULL);
}

struct answer right_answer(const struct request *request)
{
	return (struct answer){ .invalidate = request->wants_invalidation, .claim = request->wants_invalidation };
}

static void write_data(struct liar *liar, const struct request *request, const struct answer *answer,
		       struct connection *connection, uint32_t length, uint32_t imm)
{
	struct ibv_send_wr wr = {
		.opcode = imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE, .imm_data = htonl(imm),
		.wr.rdma = { request->target.addr, request->target.key },
	};
	struct ibv_sge sge = memory_sge(&liar->zeroes, 0, length);

	if (answer->data)
		memcpy(hub_room(&liar->hub, length, &sge), answer->data, length);
	connection_send(connection, &wr, &sge);
}

static void invalidate(struct connection *connection, uint32_t key)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = key };

	connection_send(connection, &wr, NULL);
}

void say_answer(struct liar *liar, const struct request *request, const struct answer *answer)
{
	struct connection *connection = answer->connection ? answer->connection : connection_of(liar, request);
	uint32_t length = answer->length < request->target.len ? answer->length : request->target.len;
	uint32_t payload = answer->error << CHUNK_BITS | request->chunk;
	uint32_t imm = IMM(answer->claim ? IO_RSP_W_INV : IO_RSP, payload);
	bool is_short = (liar->features & SHORT_RESPONSES) && !(liar->flags & NEW_RKEY) && !answer->invalidate;
	struct rkey_rsp key = { RKEY_RSP, request->chunk, liar->chunks.mr->rkey };

	if (!connection)
		return;
	if (request->has_target && length && length <= liar->zeroes.size) {
		/* The last write of the data may carry the immediate. */
		write_data(liar, request, answer, connection, length, is_short ? imm : 0);
		if (is_short)
			return;
	}
	if (request->has_target && answer->invalidate)
		invalidate(connection, request->target.key);
	if (liar->flags & NEW_RKEY)
		say_message(liar, connection, &key, sizeof(key), imm);
	else
		say_immediate(connection, imm);
}

void say_collected(struct liar *liar)
{
	struct request request = { .connection = liar->collected_for };
	struct connection *connection = connection_of(liar, &request);
	unsigned int number = liar->collected_count;

	liar->collected_count = 0;
	if (!number || !connection)
		return;
	count(KIND_COALESCED);
	say_message(liar, connection, liar->collected, number * sizeof(liar->collected[0]), IMM(IO_RSPS, number));
}
