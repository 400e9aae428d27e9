// SPDX-License-Identifier: GPL-2.0
#include "hub.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Queues of each connection, and the completion queue of all. */
#define SEND_DEPTH 512
#define RECEIVE_DEPTH 512
#define COMPLETIONS 16384
/* Of so many sends one reports its completion, which frees their places in the queue. */
#define SIGNAL_INTERVAL 16
#define OUT_SIZE (1 << 20)
/* How long a full send queue is waited for, in ms. */
#define FULL_PATIENCE 3000

int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

bool hub_open(struct hub *hub)
{
	memset(hub, 0, sizeof(*hub));
	hub->events = rdma_create_event_channel();
	return hub->events && fcntl(hub->events->fd, F_SETFL, O_NONBLOCK) == 0;
}

bool hub_use(struct hub *hub, struct rdma_cm_id *id)
{
	if (hub->context) {
		errno = EXDEV;
		return hub->context == id->verbs;
	}
	hub->pd = ibv_alloc_pd(id->verbs);
	hub->channel = ibv_create_comp_channel(id->verbs);
	if (!hub->pd || !hub->channel || fcntl(hub->channel->fd, F_SETFL, O_NONBLOCK) != 0)
		return false;
	hub->cq = ibv_create_cq(id->verbs, COMPLETIONS, NULL, hub->channel, 0);
	if (!hub->cq || !memory_new(hub, &hub->out, OUT_SIZE))
		return false;
	hub->context = id->verbs;
	return true;
}

void hub_wait(struct hub *hub, int other, int timeout_ms)
{
	struct pollfd fds[] = {
		{ .fd = hub->events->fd, .events = POLLIN },
		{ .fd = hub->channel ? hub->channel->fd : -1, .events = POLLIN },
		{ .fd = other, .events = POLLIN },
	};
	struct ibv_cq *cq;
	void *context;

	/* What came between the last look at the queue and this is looked for once more. */
	if (hub->cq && !hub->armed) {
		ibv_req_notify_cq(hub->cq, 0);
		hub->armed = true;
		return;
	}
	if (poll(fds, 3, timeout_ms) > 0 && fds[1].revents && !ibv_get_cq_event(hub->channel, &cq, &context)) {
		ibv_ack_cq_events(cq, 1);
		hub->armed = false;
	}
}

static struct connection *by_number(struct hub *hub, uint32_t number)
{
	struct connection *connection = hub->connections[number % MOST_CONNECTIONS];

	return connection && connection->number == number ? connection : NULL;
}

static struct connection *by_id(struct hub *hub, const struct rdma_cm_id *id)
{
	for (size_t at = 0; at < MOST_CONNECTIONS; at++)
		if (hub->connections[at] && hub->connections[at]->id == id)
			return hub->connections[at];
	return NULL;
}

static void note(struct connection *connection, const struct event *event)
{
	memcpy(connection->data, event->data, event->data_len);
	connection->data_len = event->data_len;
	if (event->type == RDMA_CM_EVENT_ESTABLISHED)
		connection->established = true;
	else if (event->type != RDMA_CM_EVENT_TIMEWAIT_EXIT)
		connection->gone = true;
}

bool hub_event(struct hub *hub, struct event *event)
{
	struct rdma_cm_event *got;

	if (rdma_get_cm_event(hub->events, &got) != 0)
		return false;
	*event = (struct event){ .type = got->event, .id = got->id };
	event->connection = by_id(hub, got->id);
	if (got->param.conn.private_data) {
		event->data_len = got->param.conn.private_data_len;
		memcpy(event->data, got->param.conn.private_data, event->data_len);
	}
	rdma_ack_cm_event(got);
	if (event->connection)
		note(event->connection, event);
	return true;
}

bool hub_completion(struct hub *hub, struct ibv_wc *wc, struct connection **connection)
{
	if (!hub->cq || ibv_poll_cq(hub->cq, 1, wc) <= 0)
		return false;
	*connection = by_number(hub, wc->wr_id >> 32);
	if (*connection && wc->status != IBV_WC_SUCCESS)
		(*connection)->gone = true;
	return true;
}

bool memory_new(struct hub *hub, struct memory *memory, size_t size)
{
	memory->bytes = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
	if (!memory->bytes)
		return false;
	memset(memory->bytes, 0, size);
	memory->size = size;
	memory->mr = ibv_reg_mr(hub->pd, memory->bytes, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	return memory->mr != NULL;
}

void memory_free(struct memory *memory)
{
	if (memory->mr)
		ibv_dereg_mr(memory->mr);
	free(memory->bytes);
	memset(memory, 0, sizeof(*memory));
}

struct ibv_sge memory_sge(const struct memory *memory, size_t offset, size_t length)
{
	return (struct ibv_sge){
		.addr = (uintptr_t)memory->bytes + offset, .length = length, .lkey = memory->mr->lkey,
	};
}

uint8_t *hub_room(struct hub *hub, size_t length, struct ibv_sge *sge)
{
	if (hub->out_place + length > hub->out.size)
		hub->out_place = 0;
	*sge = memory_sge(&hub->out, hub->out_place, length);
	/* On their own cache lines. */
	hub->out_place += (length + 63) / 64 * 64;
	return (uint8_t *)(uintptr_t)sge->addr;
}

struct connection *connection_new(struct hub *hub, struct rdma_cm_id *id, uint16_t cid)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = SEND_DEPTH, .max_recv_wr = RECEIVE_DEPTH, .max_send_sge = 1, .max_recv_sge = 1,
		},
	};
	struct connection *connection;

	if (!hub_use(hub, id))
		return NULL;
	/* A table that is full is no reason to fail: so many connections of a round are enough. */
	for (size_t tries = 0; hub->connections[hub->numbers % MOST_CONNECTIONS]; tries++, hub->numbers++)
		if (tries == MOST_CONNECTIONS)
			return NULL;
	connection = calloc(1, sizeof(*connection));
	if (!connection)
		return NULL;
	connection->id = id;
	connection->cid = cid;
	attr.send_cq = attr.recv_cq = hub->cq;
	if (rdma_create_qp(id, hub->pd, &attr) != 0) {
		free(connection);
		return NULL;
	}
	connection->number = hub->numbers++;
	hub->connections[connection->number % MOST_CONNECTIONS] = connection;
	return connection;
}

static bool post_receive(struct connection *connection, uint32_t index)
{
	struct ibv_sge sge = memory_sge(&connection->receives, (size_t)index * connection->receive_size,
					connection->receive_size);
	struct ibv_recv_wr wr = {
		.wr_id = wr_id(connection->number, PURPOSE_RECEIVE, index), .sg_list = &sge, .num_sge = 1,
	}, *bad;

	return ibv_post_recv(connection->id->qp, &wr, &bad) == 0;
}

bool connection_receive(struct hub *hub, struct connection *connection, uint32_t count, uint32_t size)
{
	connection->receive_size = size;
	if (!memory_new(hub, &connection->receives, (size_t)count * size))
		return false;
	for (uint32_t index = 0; index < count; index++)
		if (!post_receive(connection, index))
			return false;
	return true;
}

void connection_receive_again(struct connection *connection, const struct ibv_wc *wc)
{
	if (!connection->id->qp || !post_receive(connection, wc->wr_id & 0xffffff))
		connection->gone = true;
}

const uint8_t *connection_received(const struct connection *connection, const struct ibv_wc *wc)
{
	return connection->receives.bytes + (wc->wr_id & 0xffffff) * connection->receive_size;
}

bool connection_send(struct connection *connection, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	int64_t end = now_ms() + FULL_PATIENCE;
	struct ibv_send_wr *bad;
	int error;

	if (connection->gone || !connection->id->qp)
		return false;
	wr->wr_id = wr_id(connection->number, PURPOSE_SEND, 0);
	wr->sg_list = sge;
	wr->num_sge = sge ? 1 : 0;
	if (connection->sends++ % SIGNAL_INTERVAL == 0)
		wr->send_flags |= IBV_SEND_SIGNALED;
	while ((error = ibv_post_send(connection->id->qp, wr, &bad)) != 0) {
		struct timespec pause = { .tv_nsec = 1000000 };

		/* The device frees places while packets are acknowledged; there is no event for that. */
		if (error != ENOMEM || now_ms() > end) {
			connection->gone = true;
			return false;
		}
		nanosleep(&pause, NULL);
	}
	return true;
}

void connection_free(struct hub *hub, struct connection *connection, bool politely)
{
	if (politely)
		rdma_disconnect(connection->id);
	hub->connections[connection->number % MOST_CONNECTIONS] = NULL;
	if (connection->id->qp)
		rdma_destroy_qp(connection->id);
	rdma_destroy_id(connection->id);
	memory_free(&connection->receives);
	free(connection);
}
