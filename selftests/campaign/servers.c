// SPDX-License-Identifier: GPL-2.0
#include "servers.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "disk_user.h"
#include "liar.h"

#define RECEIVES 256
#define RECEIVE_SIZE 512
#define IDLE_MS 50
/* A request that is held back is answered after that time without another one, and then all are disconnected. */
#define HELD_MS 200
#define SILENCE_MS 3000
/* The stream of what decides the whole round; those of messages are below. */
#define STREAM_ROUND 90

static bool listens(struct liar *liar, uint16_t port)
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_addr = in6addr_any, .sin6_port = htons(port) };

	return rdma_create_id(liar->hub.events, &liar->listener, NULL, RDMA_PS_TCP) == 0 &&
	       rdma_bind_addr(liar->listener, (struct sockaddr *)&any) == 0 && rdma_listen(liar->listener, 64) == 0;
}

static bool accepts(struct liar *liar, struct connection *connection, const uint8_t *response, size_t length)
{
	struct rdma_conn_param param = {
		.private_data = response, .private_data_len = length, .responder_resources = 1, .initiator_depth = 1,
		.retry_count = 7, .rnr_retry_count = 7,
	};

	return connection_receive(&liar->hub, connection, RECEIVES, RECEIVE_SIZE) &&
	       rdma_accept(connection->id, &param) == 0;
}

static void connection_asked(struct liar *liar, const struct event *event)
{
	uint8_t response[PRIVATE_DATA] = { 0 };
	struct connection *connection;
	struct conn_req request;
	bool accept;
	size_t length;

	memset(&request, 0, sizeof(request));
	memcpy(&request, event->data, event->data_len < sizeof(request) ? event->data_len : sizeof(request));
	length = answer_connection(liar, &request, response, &accept);
	trace(liar->round, "connection %u of %u: %zu bytes, %s", request.cid, request.cid_num, length,
	      accept ? "accepted" : "refused");
	if (!accept) {
		rdma_reject(event->id, response, length);
		rdma_destroy_id(event->id);
		return;
	}
	connection = connection_new(&liar->hub, event->id, request.cid);
	if (!connection)
		rdma_destroy_id(event->id);
	else if (!liar->chunks.mr && (!memory_new(&liar->hub, &liar->chunks, QUEUE_DEPTH * CHUNK_SIZE) ||
				      !memory_new(&liar->hub, &liar->zeroes, MAX_IO)))
		connection_free(&liar->hub, connection, false);
	else if (!accepts(liar, connection, response, length))
		connection_free(&liar->hub, connection, false);
}

/* The request that an immediate is about; false if it makes no sense, as the client believes in other chunks. */
static bool parse(struct liar *liar, const struct connection *connection, uint32_t payload, struct request *request)
{
	uint64_t place = (uint64_t)(payload >> liar->mem_bits) * liar->chunk_size +
			 (payload & ((1U << liar->mem_bits) - 1));
	struct read_msg message;

	if (place + sizeof(message) > liar->chunks.size)
		return false;
	memcpy(&message, liar->chunks.bytes + place, sizeof(message));
	if (message.usr_len > place || message.usr_len > LONGEST_HEADER)
		return false;
	memset(request, 0, sizeof(*request));
	request->connection = connection->number;
	request->chunk = payload >> liar->mem_bits;
	request->header_len = message.usr_len;
	memcpy(request->header, liar->chunks.bytes + place - message.usr_len, message.usr_len);
	request->is_read = message.type == MSG_READ;
	request->has_target = request->is_read && message.sg_cnt == 1;
	if (request->has_target) {
		request->target = message.desc;
		request->wants_invalidation = message.flags & NEED_INVAL;
	}
	return true;
}

static void heard(struct liar *liar, struct connection *connection, uint32_t imm)
{
	struct request request;

	switch (imm >> PAYLOAD_BITS) {
	case IO_REQ:
		liar->last = now_ms();
		if (parse(liar, connection, PAYLOAD(imm), &request))
			answer_request(liar, &request);
		else
			rdma_disconnect(connection->id);
		break;
	case HB_MSG:
		answer_heartbeat(liar, connection);
		break;
	case PATH_END:
		answer_path_end(liar, connection, PAYLOAD(imm));
		break;
	}
}

static void completed(struct liar *liar, struct connection *connection, const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS || wr_purpose(wc) != PURPOSE_RECEIVE || connection->gone)
		return;
	if (wc->wc_flags & IBV_WC_WITH_IMM)
		heard(liar, connection, ntohl(wc->imm_data));
	else
		answer_info(liar, connection);
	connection_receive_again(connection, wc);
}

static void forget_gone(struct liar *liar)
{
	for (size_t at = 0; at < MOST_CONNECTIONS; at++) {
		struct connection *connection = liar->hub.connections[at];

		if (!connection || !connection->gone)
			continue;
		if (connection->established)
			count(OUTCOME_LOST);
		connection_free(&liar->hub, connection, true);
	}
}

static void take_events(struct liar *liar)
{
	struct connection *connection;
	struct event event;
	struct ibv_wc wc;

	/* Completions first: of a connection that ends they came before its end. */
	while (hub_completion(&liar->hub, &wc, &connection))
		if (connection)
			completed(liar, connection, &wc);
	say_collected(liar);
	while (hub_event(&liar->hub, &event)) {
		liar->last = now_ms();
		if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST)
			connection_asked(liar, &event);
		else if (event.type == RDMA_CM_EVENT_ESTABLISHED)
			count(OUTCOME_ESTABLISHED);
	}
	forget_gone(liar);
}

/* See that the client comes to an end, whatever was said to it. */
static void look_after(struct liar *liar)
{
	int64_t silence = now_ms() - liar->last;

	if (liar->held_count && silence > HELD_MS)
		answer_held(liar);
	if (silence < SILENCE_MS && !is_over())
		return;
	/* From now on nothing is wrong, so that the disk's user ends soon. */
	liar->lies = liar->ends = 0;
	if (silence < SILENCE_MS)
		return;
	trace(liar->round, "disconnect all");
	for (size_t at = 0; at < MOST_CONNECTIONS; at++)
		if (liar->hub.connections[at])
			rdma_disconnect(liar->hub.connections[at]->id);
	liar->last = now_ms();
}

static void serve(struct liar *liar, const struct disk_user *user)
{
	struct pollfd ended = { .fd = user->ended, .events = POLLIN };

	while (poll(&ended, 1, 0) == 0) {
		hub_wait(&liar->hub, user->ended, IDLE_MS);
		take_events(liar);
		look_after(liar);
	}
}

static bool run(const struct round *round)
{
	static const unsigned int lies[] = { 3000, 20000, 100000 }, ends[] = { 0, 500, 2000, 10000 };
	static const uint32_t features[] = { 0, 1, 9, 25, ALL_RTRS_FEATURES, ALL_RTRS_FEATURES, ALL_RTRS_FEATURES };
	struct numbers numbers = numbers_of(round->options->seed, round->number, STREAM_ROUND, 0);
	static struct liar liar;
	struct disk_user user;
	int status;

	liar.round = round;
	liar.lies = CHOICE(&numbers, lies);
	liar.ends = CHOICE(&numbers, ends);
	liar.offered = below(&numbers, 8) ? CHOICE(&numbers, features) : limit(&numbers, 32);
	liar.flags = below(&numbers, 4) ? 0 : NEW_RKEY;
	liar.last = now_ms();
	if (!disk_user_new(round, &user))
		return false;
	if (!hub_open(&liar.hub) || !listens(&liar, round->options->port + round->slot))
		return problem(round, "the server does not listen: %m");
	if (!disk_user_begin(&user))
		return problem(round, "the disk's user is gone");
	serve(&liar, &user);
	if (waitpid(user.pid, &status, 0) != user.pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return problem(round, "the disk's user ended with status %#x", status);
	return true;
}

static void left(const struct round *round, char *path, unsigned long room)
{
	snprintf(path, room, "/sys/class/rtrs-client/" LIAR_SESSION, round->slot);
}

const struct campaign servers = { "servers", run, left };
