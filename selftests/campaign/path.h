/* SPDX-License-Identifier: GPL-2.0 */
/* A path of a client: how it is made, which chunks are in use, what the server has sent. */
#ifndef PATH_H
#define PATH_H

#include <netinet/in.h>

#include "hub.h"
#include "numbers.h"
#include "rounds.h"

#define MOST_CIDS 4
#define MOST_CHUNKS 1024
#define PATHS 2
/* How long a server may take to respond to a request, in ms: the debug kernel is slow. */
#define RESPONSE_PATIENCE 100000

struct path {
	struct sockaddr_storage to;
	struct connection *connections[MOST_CIDS];
	/* How many connections it is to have. */
	uint16_t cid_num;
	uint8_t sess_uuid[16];
	uint16_t recon_cnt;
	bool first_conn;
	struct memory info;
	/* What the server has said. */
	uint32_t queue_depth, chunk_size, mem_bits;
	uint64_t addresses[MOST_CHUNKS];
	uint32_t keys[MOST_CHUNKS];
	/* Requests in each chunk that have no response yet. */
	uint8_t busy[MOST_CHUNKS];
	/* The server has said where its chunks are, and no connection is gone. */
	bool up;
};

struct client {
	const struct round *round;
	struct hub hub;
	struct path paths[PATHS];
	uint8_t paths_uuid[16];
	uint32_t features, unanswered;
	/* The last event that is about no connection. */
	struct event event;
	/* Heartbeats are not acknowledged. */
	bool silent;
	/* The server did what it must not. */
	bool failed;
};

/* Take what has come. */
void take_events(struct client *client);
/* Wait for something to come. */
void wait_for_more(struct client *client);
/* Wait until at most so many requests have no response; false if the round must end. */
bool wait_for_room(struct client *client, uint32_t most);
/* Wait until a chunk is free on all paths; false if the round must end. */
bool wait_for_chunk(struct client *client, uint32_t chunk);

/* A request for a connection as it should be. */
struct conn_req path_request(const struct client *client, const struct path *path, uint16_t cid);
/* Make a connection; NULL if it failed. */
struct connection *path_connect(struct client *client, struct path *path, const struct conn_req *request);
/*
 * Make all connections, say the name, and learn where the chunks are. `lie`, unless NULL, has the numbers for one
 * thing that is wrong. Returns whether the path is up.
 */
bool path_establish(struct client *client, struct path *path, struct numbers *lie);
/* Free the connections. */
void path_close(struct client *client, struct path *path, bool politely);

#endif
