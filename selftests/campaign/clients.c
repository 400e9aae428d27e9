// SPDX-License-Identifier: GPL-2.0
#include "clients.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "path.h"
#include "user.h"
#include "wire.h"

/* What a decision is about, see numbers.h. */
enum stream { STREAM_ROUND, STREAM_FIRST, STREAM_STEP, STREAM_RECONNECT, STREAM_END };

/* The most requests without a response. */
#define WINDOW 24
#define EXTRA_CONNECTIONS 8
#define RECONNECTS 6
/* A path that was lost may be refused until the server has ended it. */
#define RECONNECT_TRIES 40
#define RECONNECT_PAUSE_MS 50
/* Memory that responses are written to: data, and behind it the response to an open message. */
#define DATA_ROOM (64 << 10)
#define SCRATCH_SIZE (DATA_ROOM + ROOM_FOR_RESPONSE)

/* What ends a path. */
enum end {
	NOTHING, BAD_TYPE, BAD_PAYLOAD, BAD_OFFSET, BAD_KEY, BAD_ADDRESS, BAD_TARGET, INVALIDATE, BAD_MESSAGE,
	SAME_CHUNK, SEND_MESSAGE, DISCONNECT, DESTROY, ENDS,
};

struct hostile {
	struct client client;
	struct user user;
	struct memory scratch;
	/* How many of a million messages are wrong in a way that gets an error, and in one that ends the path. */
	unsigned int lies, ends;
	uint64_t steps;
	unsigned int reconnects;
	struct connection *extra[EXTRA_CONNECTIONS];
	unsigned int extras;
};

static struct numbers decision(const struct hostile *hostile, enum stream stream, uint64_t index)
{
	const struct round *round = hostile->client.round;

	return numbers_of(round->options->seed, round->number, stream, index);
}

static struct path *other_path(struct hostile *hostile, const struct path *path)
{
	return &hostile->client.paths[path == &hostile->client.paths[0]];
}

/* The transport's message of a request. Returns its length. */
static uint32_t transport_message(struct hostile *hostile, struct numbers *numbers, const struct message *message,
				  bool lies, enum end end, struct read_msg *out)
{
	bool is_open = message->kind == KIND_OPEN;
	uint32_t offset = is_open ? DATA_ROOM : 0;

	memset(out, 0, sizeof(*out));
	out->type = message->is_read ? MSG_READ : MSG_WRITE;
	out->usr_len = message->header_len;
	if (lies && likely(numbers, 100000))
		out->usr_len = limit(numbers, 16);
	if (end == BAD_TYPE)
		out->type = limit(numbers, 16);
	if (!message->is_read)
		return sizeof(struct write_msg);
	out->sg_cnt = message->room != 0;
	out->desc.addr = (uintptr_t)hostile->scratch.bytes + offset;
	out->desc.key = hostile->scratch.mr->rkey;
	out->desc.len = message->room;
	if (lies && likely(numbers, 100000))
		out->sg_cnt = limit(numbers, 16);
	if (lies && likely(numbers, 100000))
		out->desc.len = limit(numbers, 32);
	if (lies && likely(numbers, 100000))
		out->flags = limit(numbers, 16) & ~NEED_INVAL;
	if (end == INVALIDATE)
		out->flags |= NEED_INVAL;
	if (end == BAD_TARGET && below(numbers, 2))
		out->desc.key = limit(numbers, 32);
	else if (end == BAD_TARGET)
		out->desc.addr += limit(numbers, 64);
	return out->sg_cnt ? sizeof(*out) : 8;
}

static uint32_t pick_chunk(const struct path *path, struct numbers *numbers)
{
	uint32_t low = below(numbers, 4), any = below(numbers, path->queue_depth);

	return below(numbers, 4) || low >= path->queue_depth ? any : low;
}

/* Post the message that lies in a chunk's place, and count on a response. */
static void post_request(struct hostile *hostile, struct path *path, struct connection *connection, uint32_t chunk,
			 uint32_t place, uint32_t payload, struct ibv_sge *sge, struct numbers *numbers, enum end end)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = htonl(IMM(IO_REQ, payload)),
		.wr.rdma = { path->addresses[chunk] + place, path->keys[chunk] },
	};
	uint32_t named = PAYLOAD(payload) >> path->mem_bits;

	if (end == BAD_KEY)
		wr.wr.rdma.rkey = limit(numbers, 32);
	if (end == BAD_ADDRESS)
		wr.wr.rdma.remote_addr += limit(numbers, 48);
	if (connection_send(connection, &wr, sge->length ? sge : NULL) && named < path->queue_depth) {
		path->busy[named]++;
		hostile->client.unanswered++;
	}
}

static bool send_request(struct hostile *hostile, struct path *path, struct numbers *numbers,
			 const struct message *message, bool lies, enum end end)
{
	struct client *client = &hostile->client;
	uint32_t chunk = pick_chunk(path, numbers), place = message->is_read ? message->room : 0, payload, length;
	struct connection *connection = path->connections[path->cid_num - 1];
	struct read_msg last;
	struct ibv_sge sge;
	uint8_t *bytes;

	/* A server has few receives on the service connection, which slows the client down. */
	if (likely(numbers, 40000))
		connection = path->connections[below(numbers, path->cid_num)];
	length = transport_message(hostile, numbers, message, lies, end, &last);
	if (end == BAD_MESSAGE)
		length = spoil(numbers, (uint8_t *)&last, length, sizeof(last));
	payload = place + message->data_len + message->header_len;
	if (end == BAD_OFFSET)
		payload = below(numbers, 2) ? path->chunk_size - below(numbers, 24) : limit(numbers, path->mem_bits);
	payload |= chunk << path->mem_bits;
	if (end == BAD_PAYLOAD)
		payload = limit(numbers, PAYLOAD_BITS);
	if (!wait_for_chunk(client, chunk) || !path->up)
		return !client->failed;
	bytes = hub_room(&client->hub, message->data_len + message->header_len + length, &sge);
	junk(numbers, bytes, message->data_len < 64 ? message->data_len : 64);
	memcpy(bytes + message->data_len, message->header, message->header_len);
	memcpy(bytes + message->data_len + message->header_len, &last, length);
	count(message->kind);
	trace(client->round, "message %d: chunk %u, immediate %#x, %u bytes%s%s", message->kind, chunk, payload,
	      sge.length, lies ? ", lies" : "", end ? ", ends" : "");
	for (int times = end == SAME_CHUNK ? 3 : 1; times; times--)
		post_request(hostile, path, connection, chunk, place, payload, &sge, numbers, end);
	return true;
}

/* The number of the device is in the last response to an open message. */
static void learn_device(struct hostile *hostile)
{
	const struct open_rsp *response = (const struct open_rsp *)(hostile->scratch.bytes + DATA_ROOM);

	if (response->hdr.type == RNBD_OPEN + 1)
		hostile->user.device_id = response->device_id;
}

static bool say_first(struct hostile *hostile)
{
	struct path *path = &hostile->client.paths[0];
	struct message message;

	for (unsigned int which = 0; which < FIRST_MESSAGES; which++) {
		struct numbers numbers = decision(hostile, STREAM_FIRST, which);

		first_message(&hostile->user, &numbers, which, &message);
		if (!path->up || !send_request(hostile, path, &numbers, &message, false, NOTHING) ||
		    !wait_for_room(&hostile->client, 0))
			return !hostile->client.failed;
	}
	learn_device(hostile);
	return true;
}

static bool immediate(struct hostile *hostile, struct path *path, struct numbers *numbers)
{
	static const uint32_t kinds[] = {
		IO_RSP, IO_RSP_W_INV, IO_RSPS, PATH_END, PATH_END, PATH_ENDED, DOORBELL, 7, HB_MSG, HB_MSG, HB_ACK,
		10, 15,
	};
	uint32_t kind = CHOICE(numbers, kinds), own, other;
	uint64_t which = below(numbers, 8);
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE_WITH_IMM };

	memcpy(&own, path->sess_uuid, sizeof(own));
	memcpy(&other, other_path(hostile, path)->sess_uuid, sizeof(other));
	own += path->recon_cnt;
	wr.imm_data = htonl(IMM(kind, which == 0 ? other : which < 4 ? own : limit(numbers, PAYLOAD_BITS)));
	count(kind == HB_MSG ? KIND_HEARTBEAT : kind == PATH_END ? KIND_PATH_END : KIND_IMMEDIATE);
	/* The own number changes with each attempt to connect. */
	trace(hostile->client.round, "immediate of type %u, %#x", kind, which < 4 ? 0 : ntohl(wr.imm_data));
	connection_send(path->connections[below(numbers, path->cid_num)], &wr, NULL);
	return true;
}

/* Write to a chunk that is not in use. */
static bool write_alone(struct hostile *hostile, struct path *path, struct numbers *numbers)
{
	uint32_t chunk = pick_chunk(path, numbers);
	uint32_t places[] = { 0, SECTOR, path->chunk_size - 8, below(numbers, path->chunk_size - 8) };
	struct connection *connection = path->connections[below(numbers, path->cid_num)];
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE };
	struct ibv_sge sge;

	wr.wr.rdma.remote_addr = CHOICE(numbers, places);
	if (!wait_for_chunk(&hostile->client, chunk) || !path->up)
		return !hostile->client.failed;
	junk(numbers, hub_room(&hostile->client.hub, 8, &sge), 8);
	wr.wr.rdma.remote_addr += path->addresses[chunk];
	wr.wr.rdma.rkey = path->keys[chunk];
	count(KIND_WRITE);
	trace(hostile->client.round, "write to chunk %u", chunk);
	connection_send(connection, &wr, &sge);
	return true;
}

/* One more connection of a path, whatever there is. */
static bool connect_again(struct hostile *hostile, struct path *path, struct numbers *numbers)
{
	uint16_t cids[] = { 0, 1, path->cid_num, limit(numbers, 16) };
	struct conn_req request = path_request(&hostile->client, path, CHOICE(numbers, cids));
	struct connection **place = &hostile->extra[hostile->extras % EXTRA_CONNECTIONS];

	request.recon_cnt += below(numbers, 4) ? 0 : limit(numbers, 16);
	request.cid_num = below(numbers, 4) ? request.cid_num : limit(numbers, 16);
	if (*place)
		connection_free(&hostile->client.hub, *place, true);
	*place = path_connect(&hostile->client, path, &request);
	hostile->extras++;
	return true;
}

/* Add the second path, or remove it. */
static bool change_paths(struct hostile *hostile, struct numbers *numbers)
{
	struct path *path = &hostile->client.paths[1];
	bool was_up = path->up, is_polite = below(numbers, 2);

	if (!path->to.ss_family)
		return true;
	path_close(&hostile->client, path, is_polite);
	path->recon_cnt++;
	if (!was_up)
		path_establish(&hostile->client, path, NULL);
	else
		count(KIND_DISCONNECT);
	return true;
}

static void send_message(struct hostile *hostile, struct path *path, struct numbers *numbers)
{
	struct ibv_send_wr wr = { .opcode = below(numbers, 2) ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM };
	size_t length = 4 + below(numbers, 300);
	struct ibv_sge sge;
	uint8_t *bytes = hub_room(&hostile->client.hub, length, &sge);

	wr.imm_data = htonl(limit(numbers, 32));
	junk(numbers, bytes, length);
	memset(bytes, 0, 4);
	count(KIND_SEND);
	connection_send(path->connections[below(numbers, path->cid_num)], &wr, &sge);
}

/* Do what ends a path, sooner or later. */
static bool end_path(struct hostile *hostile, struct path *path, struct numbers *numbers)
{
	enum end end = 1 + below(numbers, ENDS - 1);
	struct connection *connection = path->connections[below(numbers, path->cid_num)];
	struct message message;

	trace(hostile->client.round, "end %d", end);
	switch (end) {
	case SEND_MESSAGE:
		send_message(hostile, path, numbers);
		return true;
	case DISCONNECT:
		count(KIND_DISCONNECT);
		rdma_disconnect(connection->id);
		return true;
	case DESTROY:
		count(KIND_DISCONNECT);
		rdma_destroy_qp(connection->id);
		connection->gone = true;
		return true;
	default:
		any_message(&hostile->user, numbers, false, &message);
		return send_request(hostile, path, numbers, &message, false, end);
	}
}

/* Connect the first path again, or end the round: both paths are gone. */
static bool begin_again(struct hostile *hostile)
{
	struct numbers numbers = decision(hostile, STREAM_RECONNECT, hostile->reconnects);
	struct timespec pause = { .tv_nsec = RECONNECT_PAUSE_MS * 1000000 };
	struct path *path = &hostile->client.paths[0];
	bool closes = below(&numbers, 2), says = below(&numbers, 4);

	if (hostile->reconnects++ >= RECONNECTS || below(&numbers, 4) == 0)
		return false;
	trace(hostile->client.round, "connect again");
	path_close(&hostile->client, path, closes);
	path_close(&hostile->client, &hostile->client.paths[1], closes);
	for (int tries = 0; path->recon_cnt++, !path_establish(&hostile->client, path, NULL); tries++) {
		path_close(&hostile->client, path, true);
		if (tries == RECONNECT_TRIES || is_over())
			return false;
		nanosleep(&pause, NULL);
	}
	return !says || say_first(hostile);
}

/* One step of a round; false if it was the last one. */
static bool step(struct hostile *hostile, uint64_t index)
{
	struct numbers numbers = decision(hostile, STREAM_STEP, index);
	struct path *path = &hostile->client.paths[below(&numbers, PATHS)];
	bool ends = likely(&numbers, hostile->ends), lies = likely(&numbers, hostile->lies);
	uint64_t pick = below(&numbers, 1000);
	struct message message;

	trace(hostile->client.round, "step %llu", (unsigned long long)index);
	take_events(&hostile->client);
	if (hostile->client.failed)
		return false;
	if (!path->up)
		path = other_path(hostile, path);
	if (!path->up)
		return begin_again(hostile);
	if (!wait_for_room(&hostile->client, WINDOW) || !path->up)
		return !hostile->client.failed;
	if (ends)
		return end_path(hostile, path, &numbers);
	if (pick < 50)
		return immediate(hostile, path, &numbers);
	if (pick < 80)
		return write_alone(hostile, path, &numbers);
	if (pick < 90)
		return wait_for_room(&hostile->client, 0);
	if (pick < 92)
		return connect_again(hostile, path, &numbers);
	if (pick < 94)
		return change_paths(hostile, &numbers);
	learn_device(hostile);
	any_message(&hostile->user, &numbers, lies, &message);
	return send_request(hostile, path, &numbers, &message, lies, NOTHING);
}

static bool set_address(struct sockaddr_storage *to, const char *address, uint16_t port)
{
	struct sockaddr_in *in = (struct sockaddr_in *)to;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)to;

	if (inet_pton(AF_INET, address, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
		return true;
	}
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(port);
	return inet_pton(AF_INET6, address, &in6->sin6_addr) == 1;
}

/* What decides the whole round. */
static bool set_up(struct hostile *hostile, const struct round *round, struct numbers *numbers)
{
	static const uint64_t steps[] = { 10, 100, 1000, 4000 };
	static const unsigned int lies[] = { 20000, 100000, 400000 }, ends[] = { 0, 1000, 4000, 20000 };
	static const uint16_t cids[] = { 1, 2, 2, 2, 2, 3, 3 };
	static const uint32_t features[] = { 0, 1, 9, 25, ALL_RTRS_FEATURES, ALL_RTRS_FEATURES };
	const struct options *options = round->options;
	struct client *client = &hostile->client;
	uint16_t cid_num = CHOICE(numbers, cids);

	memset(hostile, 0, sizeof(*hostile));
	client->round = round;
	hostile->user.disk = options->disks[round->slot];
	client->features = below(numbers, 8) ? CHOICE(numbers, features) : limit(numbers, 32);
	client->silent = below(numbers, 16) == 0;
	hostile->steps = 1 + below(numbers, CHOICE(numbers, steps));
	hostile->lies = CHOICE(numbers, lies);
	hostile->ends = CHOICE(numbers, ends);
	junk(numbers, client->paths_uuid, sizeof(client->paths_uuid));
	for (int at = 0; at < PATHS; at++) {
		struct path *path = &client->paths[at];

		path->cid_num = cid_num;
		path->first_conn = at == 0;
		junk(numbers, path->sess_uuid, sizeof(path->sess_uuid));
	}
	if (!hub_open(&client->hub) || !set_address(&client->paths[0].to, options->address, options->port) ||
	    (options->address6 && !set_address(&client->paths[1].to, options->address6, options->port)))
		return problem(round, "no event channel, or no address: %m");
	return true;
}

static void finish(struct hostile *hostile)
{
	struct numbers numbers = decision(hostile, STREAM_END, 0);
	uint64_t how = below(&numbers, 4);

	if (how == 0)
		wait_for_room(&hostile->client, 0);
	/* The kernel ends the connections of a process that is gone. */
	if (how == 3)
		return;
	count(KIND_DISCONNECT);
	for (int at = 0; at < PATHS; at++)
		path_close(&hostile->client, &hostile->client.paths[at], how != 2);
}

static bool run(const struct round *round)
{
	struct numbers numbers = numbers_of(round->options->seed, round->number, STREAM_ROUND, 0);
	static struct hostile hostile;
	bool lies, says, goes_on;

	if (!set_up(&hostile, round, &numbers))
		return false;
	lies = below(&numbers, 10) == 0;
	says = below(&numbers, 10);
	goes_on = path_establish(&hostile.client, &hostile.client.paths[0], lies ? &numbers : NULL) &&
		  memory_new(&hostile.client.hub, &hostile.scratch, SCRATCH_SIZE) && (!says || say_first(&hostile));
	for (uint64_t index = 0; goes_on && index < hostile.steps && !is_over(); index++)
		goes_on = step(&hostile, index);
	finish(&hostile);
	return !hostile.client.failed;
}

static void left(const struct round *round, char *path, unsigned long room)
{
	snprintf(path, room, "/sys/class/rtrs-server/hostile%llu", (unsigned long long)round->number);
}

const struct campaign clients = { "clients", run, left };
