/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The RDMA connections of a process: made by librdmacm, used by libibverbs, all on one device and one completion
 * queue. A process is one end of one round, so what it leaves to the kernel is given back when it exits.
 */
#ifndef HUB_H
#define HUB_H

#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MOST_CONNECTIONS 64
#define PRIVATE_DATA 256
/* What a work request is for, in bits 24 to 31 of its number: the connection is above, an index below. */
enum purpose { PURPOSE_RECEIVE, PURPOSE_INFO, PURPOSE_SEND };

struct memory {
	uint8_t *bytes;
	size_t size;
	struct ibv_mr *mr;
};

struct connection {
	struct rdma_cm_id *id;
	/* No other connection of the process has had this number. */
	uint32_t number;
	uint16_t cid;
	struct memory receives;
	uint32_t receive_size;
	/* The private data that the other end sent last. */
	uint8_t data[PRIVATE_DATA];
	uint8_t data_len;
	bool established;
	/* It was disconnected or refused, or has failed: nothing can be sent any more. */
	bool gone;
	uint32_t sends;
	/* Its user's. */
	void *owner;
};

struct event {
	enum rdma_cm_event_type type;
	struct rdma_cm_id *id;
	/* The connection that it is about; NULL for a request for one. */
	struct connection *connection;
	uint8_t data[PRIVATE_DATA];
	uint8_t data_len;
};

struct hub {
	struct rdma_event_channel *events;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	bool armed;
	struct connection *connections[MOST_CONNECTIONS];
	uint32_t numbers;
	/* Memory that messages are sent from, in turn. */
	struct memory out;
	size_t out_place;
};

/* All functions that return bool return false if that failed; errno or the connection's `gone` says why. */

bool hub_open(struct hub *hub);
/* Allocate what all connections share, on the device of an id; called with each id that has a device. */
bool hub_use(struct hub *hub, struct rdma_cm_id *id);
/* Wait until there may be an event or a completion, or `other` (or -1) is readable; at most so long. */
void hub_wait(struct hub *hub, int other, int timeout_ms);
/* The next event, if there is one; a connection it is about has noted it. */
bool hub_event(struct hub *hub, struct event *event);
/* The next completion, if there is one. A failed one has been noted at its connection, which may be gone (NULL). */
bool hub_completion(struct hub *hub, struct ibv_wc *wc, struct connection **connection);

bool memory_new(struct hub *hub, struct memory *memory, size_t size);
void memory_free(struct memory *memory);
struct ibv_sge memory_sge(const struct memory *memory, size_t offset, size_t length);
/* A place for a message of at most 128 KiB, which stays for a while. */
uint8_t *hub_room(struct hub *hub, size_t length, struct ibv_sge *sge);

/* A connection on an id, with a queue pair; NULL if that failed. The id stays the caller's then. */
struct connection *connection_new(struct hub *hub, struct rdma_cm_id *id, uint16_t cid);
/* Post receives of so many bytes. */
bool connection_receive(struct hub *hub, struct connection *connection, uint32_t count, uint32_t size);
/* Post the receive of a completion again. */
void connection_receive_again(struct connection *connection, const struct ibv_wc *wc);
/* The bytes of a receive. */
const uint8_t *connection_received(const struct connection *connection, const struct ibv_wc *wc);
/* Send; a full queue is waited for. `sge` may be NULL. */
bool connection_send(struct connection *connection, struct ibv_send_wr *wr, struct ibv_sge *sge);
/* Free it; `politely`: disconnect before. */
void connection_free(struct hub *hub, struct connection *connection, bool politely);

static inline enum purpose wr_purpose(const struct ibv_wc *wc)
{
	return wc->wr_id >> 24 & 0xff;
}

static inline uint64_t wr_id(uint32_t number, enum purpose purpose, uint32_t index)
{
	return (uint64_t)number << 32 | (uint64_t)purpose << 24 | index;
}

/* A monotonic clock, in ms. */
int64_t now_ms(void);

#endif
