// SPDX-License-Identifier: GPL-2.0
#include "path.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "wire.h"

/* Receives of a connection, and their size: a message with as many responses as there can be. */
#define RECEIVES 192
#define RECEIVE_SIZE (2 * MOST_COALESCED)
#define RESOLVE_MS 4000
#define CONNECT_PATIENCE 15000

static void send_immediate(struct connection *connection, uint32_t imm, enum kind kind)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = htonl(imm) };

	count(kind);
	connection_send(connection, &wr, NULL);
}

static void responded(struct client *client, struct path *path, uint32_t chunk, uint32_t error)
{
	if (chunk >= path->queue_depth || !path->busy[chunk]) {
		client->failed = true;
		problem(client->round, "the server responded to chunk %u, which has no request", chunk);
		return;
	}
	path->busy[chunk]--;
	client->unanswered--;
	count(error ? OUTCOME_REFUSED : OUTCOME_CARRIED_OUT);
}

static void new_key(struct path *path, const struct rkey_rsp *message, uint32_t length)
{
	if (length >= sizeof(*message) && message->type == RKEY_RSP && message->buf_id < path->queue_depth)
		path->keys[message->buf_id] = message->rkey;
}

static void received(struct client *client, struct path *path, struct connection *connection,
		     const struct ibv_wc *wc)
{
	uint32_t imm = ntohl(wc->imm_data), payload = PAYLOAD(imm);
	const void *message = connection_received(connection, wc);
	const uint16_t *chunks = message;

	if (!(wc->wc_flags & IBV_WC_WITH_IMM))
		return;
	switch (imm >> PAYLOAD_BITS) {
	case IO_RSP:
	case IO_RSP_W_INV:
		if (wc->opcode == IBV_WC_RECV)
			new_key(path, message, wc->byte_len);
		responded(client, path, CHUNK_OF(payload), payload >> CHUNK_BITS);
		break;
	case IO_RSPS:
		for (uint32_t at = 0; at < payload && at < MOST_COALESCED; at++)
			responded(client, path, chunks[at], 0);
		break;
	case HB_MSG:
		if (!client->silent)
			send_immediate(connection, IMM(HB_ACK, 0), KIND_HEARTBEAT);
		break;
	}
}

static void learn_chunks(struct path *path, const struct info_rsp *info, uint32_t length)
{
	uint32_t found = 0;

	for (uint32_t at = 0; sizeof(*info) + (at + 1) * sizeof(info->desc[0]) <= length && at < info->sg_cnt; at++)
		for (uint32_t offset = 0; offset < info->desc[at].len && found < path->queue_depth;
		     offset += path->chunk_size, found++) {
			path->addresses[found] = info->desc[at].addr + offset;
			path->keys[found] = info->desc[at].key;
		}
	path->up = found == path->queue_depth && info->type == INFO_RSP;
	if (path->up)
		count(OUTCOME_ESTABLISHED);
}

static void completed(struct client *client, struct connection *connection, const struct ibv_wc *wc)
{
	struct path *path = connection->owner;

	if (wc->status != IBV_WC_SUCCESS || wr_purpose(wc) == PURPOSE_SEND || !path)
		return;
	if (wr_purpose(wc) == PURPOSE_INFO) {
		learn_chunks(path, (struct info_rsp *)path->info.bytes, wc->byte_len);
		return;
	}
	if (path->up)
		received(client, path, connection, wc);
	connection_receive_again(connection, wc);
}

static void look_at(struct client *client, struct path *path)
{
	bool is_lost = false;

	for (uint16_t cid = 0; cid < path->cid_num; cid++)
		is_lost |= path->connections[cid] && path->connections[cid]->gone;
	if (!path->up || !is_lost)
		return;
	count(OUTCOME_LOST);
	path->up = false;
	for (uint32_t chunk = 0; chunk < path->queue_depth; chunk++)
		client->unanswered -= path->busy[chunk];
	memset(path->busy, 0, sizeof(path->busy));
}

void take_events(struct client *client)
{
	struct connection *connection;
	struct event event;
	struct ibv_wc wc;

	while (hub_completion(&client->hub, &wc, &connection))
		if (connection)
			completed(client, connection, &wc);
	while (hub_event(&client->hub, &event))
		if (!event.connection)
			client->event = event;
	for (int at = 0; at < PATHS; at++)
		look_at(client, &client->paths[at]);
}

void wait_for_more(struct client *client)
{
	hub_wait(&client->hub, -1, 200);
	take_events(client);
}

/* Wait for more, but not for ever: false if the server should have responded by now. */
static bool goes_on(struct client *client, int64_t end)
{
	if (client->unanswered && now_ms() > end) {
		client->failed = true;
		problem(client->round, "%u requests have no response, and their paths are up", client->unanswered);
	}
	wait_for_more(client);
	return !client->failed;
}

bool wait_for_room(struct client *client, uint32_t most)
{
	int64_t end = now_ms() + RESPONSE_PATIENCE;

	while (client->unanswered > most)
		if (!goes_on(client, end))
			return false;
	return !client->failed;
}

bool wait_for_chunk(struct client *client, uint32_t chunk)
{
	int64_t end = now_ms() + RESPONSE_PATIENCE;

	while (client->paths[0].busy[chunk] || client->paths[1].busy[chunk])
		if (!goes_on(client, end))
			return false;
	return !client->failed;
}

struct conn_req path_request(const struct client *client, const struct path *path, uint16_t cid)
{
	struct conn_req request = {
		.magic = RTRS_MAGIC, .version = RTRS_VERSION, .cid = cid, .cid_num = path->cid_num,
		.recon_cnt = path->recon_cnt, .first_conn = path->first_conn, .features = client->features,
	};

	memcpy(request.sess_uuid, path->sess_uuid, sizeof(request.sess_uuid));
	memcpy(request.paths_uuid, client->paths_uuid, sizeof(request.paths_uuid));
	return request;
}

/* Wait for an event of an id that has no connection yet. */
static bool resolved(struct client *client, const struct rdma_cm_id *id, enum rdma_cm_event_type wanted)
{
	int64_t end = now_ms() + RESOLVE_MS + 1000;

	while (client->event.id != id && now_ms() < end)
		wait_for_more(client);
	if (client->event.id != id)
		return false;
	client->event.id = NULL;
	return client->event.type == wanted;
}

static bool post_info_receive(struct client *client, struct path *path, struct connection *connection)
{
	struct ibv_recv_wr wr = { .wr_id = wr_id(connection->number, PURPOSE_INFO, 0), .num_sge = 1 }, *bad;
	struct ibv_sge sge;

	if (!path->info.bytes &&
	    !memory_new(&client->hub, &path->info, sizeof(struct info_rsp) + MOST_CHUNKS * sizeof(struct desc)))
		return false;
	sge = memory_sge(&path->info, 0, path->info.size);
	wr.sg_list = &sge;
	return ibv_post_recv(connection->id->qp, &wr, &bad) == 0;
}

static bool confirmed(struct client *client, struct connection *connection, const struct conn_req *request)
{
	struct rdma_conn_param param = {
		.private_data = request, .private_data_len = sizeof(*request), .retry_count = 7, .rnr_retry_count = 7,
	};
	int64_t end = now_ms() + CONNECT_PATIENCE;

	if (rdma_connect(connection->id, &param) != 0)
		return false;
	while (!connection->established && !connection->gone && now_ms() < end)
		wait_for_more(client);
	return connection->established && !connection->gone;
}

struct connection *path_connect(struct client *client, struct path *path, const struct conn_req *request)
{
	struct connection *connection;
	struct rdma_cm_id *id;

	count(KIND_CONNECT);
	trace(client->round, "connect cid %u of %u", request->cid, request->cid_num);
	if (rdma_create_id(client->hub.events, &id, NULL, RDMA_PS_TCP) != 0)
		return NULL;
	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&path->to, RESOLVE_MS) != 0 ||
	    !resolved(client, id, RDMA_CM_EVENT_ADDR_RESOLVED) || rdma_resolve_route(id, RESOLVE_MS) != 0 ||
	    !resolved(client, id, RDMA_CM_EVENT_ROUTE_RESOLVED)) {
		rdma_destroy_id(id);
		return NULL;
	}
	connection = connection_new(&client->hub, id, request->cid);
	if (!connection) {
		rdma_destroy_id(id);
		return NULL;
	}
	/* The first message on the service connection is the longest. */
	if ((request->cid != 0 || post_info_receive(client, path, connection)) &&
	    connection_receive(&client->hub, connection, RECEIVES, RECEIVE_SIZE) &&
	    confirmed(client, connection, request))
		return connection;
	connection_free(&client->hub, connection, false);
	return NULL;
}

static bool take_layout(struct path *path, const struct connection *connection)
{
	const struct conn_rsp *response = (const struct conn_rsp *)connection->data;
	uint32_t most = response->queue_depth - 1;

	if (connection->data_len < sizeof(*response) || !response->queue_depth || response->queue_depth > MOST_CHUNKS)
		return false;
	path->queue_depth = response->queue_depth;
	path->chunk_size = response->max_io_size + response->max_hdr_size;
	path->mem_bits = PAYLOAD_BITS - (most ? 32 - __builtin_clz(most) : 0);
	return path->chunk_size != 0;
}

/* Another value in a place of a request for a connection. */
static void lie_in(struct conn_req *request, struct numbers *lie)
{
	switch (below(lie, 8)) {
	case 0:
		request->cid = limit(lie, 16);
		break;
	case 1:
		request->cid_num = limit(lie, 16);
		break;
	case 2:
		request->recon_cnt = limit(lie, 16);
		break;
	case 3:
		request->magic = limit(lie, 16);
		break;
	case 4:
		request->version = limit(lie, 16);
		break;
	case 5:
		memset(request->sess_uuid, 0, sizeof(request->sess_uuid));
		break;
	case 6:
		request->first_conn = limit(lie, 8);
		break;
	case 7:
		request->given_up = limit(lie, 32);
		break;
	}
}

static bool send_info(struct client *client, struct path *path, struct numbers *lie)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND };
	struct info_req *info;
	struct ibv_sge sge;

	info = (struct info_req *)hub_room(&client->hub, 2 * sizeof(*info), &sge);
	memset(info, 0, sizeof(*info));
	snprintf(info->name, sizeof(info->name), "hostile%llu", (unsigned long long)client->round->number);
	sge.length = sizeof(*info);
	if (lie)
		sge.length = spoil(lie, (uint8_t *)info, sizeof(*info), 2 * sizeof(*info));
	count(KIND_INFO);
	trace(client->round, "info, %u bytes", sge.length);
	return connection_send(path->connections[0], &wr, &sge);
}

bool path_establish(struct client *client, struct path *path, struct numbers *lie)
{
	/* The place that is wrong: a connection, or the information request, also with connections missing. */
	uint64_t wrong = lie ? below(lie, path->cid_num + 2) : UINT64_MAX;
	int64_t end;

	for (uint16_t cid = 0; cid < path->cid_num; cid++) {
		struct conn_req request = path_request(client, path, cid);

		if (cid == wrong)
			lie_in(&request, lie);
		path->connections[cid] = path_connect(client, path, &request);
		if (!path->connections[cid] || (cid == 0 && !take_layout(path, path->connections[0])))
			return false;
		path->connections[cid]->owner = path;
		if (wrong == path->cid_num + 1U && below(lie, 2))
			break;
	}
	if (!send_info(client, path, wrong == path->cid_num ? lie : NULL))
		return false;
	end = now_ms() + CONNECT_PATIENCE;
	while (!path->up && !path->connections[0]->gone && now_ms() < end)
		wait_for_more(client);
	return path->up;
}

void path_close(struct client *client, struct path *path, bool politely)
{
	for (uint16_t cid = 0; cid < MOST_CIDS; cid++) {
		if (path->connections[cid])
			connection_free(&client->hub, path->connections[cid], politely);
		path->connections[cid] = NULL;
	}
	for (uint32_t chunk = 0; chunk < MOST_CHUNKS; chunk++)
		client->unanswered -= path->busy[chunk];
	memset(path->busy, 0, sizeof(path->busy));
	path->up = false;
}
