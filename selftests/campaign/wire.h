/* SPDX-License-Identifier: GPL-2.0 */
/* The messages of RTRS and RNBD as Documentation/protocol.md has them. All integers are little-endian. */
#ifndef WIRE_H
#define WIRE_H

#include <stdint.h>

#define RTRS_MAGIC 0x1bbd
#define RTRS_VERSION 0x0200
#define RNBX_MAGIC 0x58424e52
#define SECTOR 512
#define NAME_SIZE 255

/* Immediates: four bits of type, 28 bits of payload. */
enum {
	IO_REQ, IO_RSP, IO_RSP_W_INV, IO_RSPS, PATH_END, PATH_ENDED, DOORBELL, HB_MSG = 8, HB_ACK,
};

#define PAYLOAD_BITS 28
#define PAYLOAD(imm) ((imm) & ((1U << PAYLOAD_BITS) - 1))
#define IMM(type, payload) ((uint32_t)(type) << PAYLOAD_BITS | PAYLOAD((uint32_t)(payload)))
/* The payload of a response: a number of a chunk, and behind it an errno. */
#define CHUNK_BITS 19
#define CHUNK_OF(payload) ((payload) & ((1U << CHUNK_BITS) - 1))

enum { INFO_REQ, INFO_RSP, MSG_WRITE, MSG_READ, RKEY_RSP };

enum { SHORT_RESPONSES = 1, COALESCED_RESPONSES = 2, PATH_ENDS = 8, DOORBELLS = 16, REFUSALS = 64 };
#define ALL_RTRS_FEATURES (SHORT_RESPONSES | COALESCED_RESPONSES | PATH_ENDS | DOORBELLS | REFUSALS)
#define ALL_RNBD_FEATURES 0x7f
#define NEW_RKEY 2
#define NEED_INVAL 1
#define MOST_COALESCED 64

struct conn_req {
	uint8_t cma_version, ip_version;
	uint16_t magic, version, cid, cid_num, recon_cnt;
	uint8_t sess_uuid[16], paths_uuid[16], first_conn, reserved[3];
	uint32_t features, given_up;
} __attribute__((packed));

struct conn_rsp {
	uint16_t magic, version;
	int16_t error;
	uint16_t queue_depth;
	uint32_t max_io_size, max_hdr_size, flags, features;
	uint8_t reserved[32];
} __attribute__((packed));

struct info_req {
	uint16_t type;
	char name[NAME_SIZE];
	uint8_t reserved[15];
} __attribute__((packed));

struct desc {
	uint64_t addr;
	uint32_t key, len;
} __attribute__((packed));

struct info_rsp {
	uint16_t type, sg_cnt;
	uint32_t reserved;
	struct desc desc[];
} __attribute__((packed));

struct write_msg {
	uint16_t type, usr_len;
} __attribute__((packed));

struct read_msg {
	uint16_t type, usr_len, flags, sg_cnt;
	struct desc desc;
} __attribute__((packed));

struct rkey_rsp {
	uint16_t type, buf_id;
	uint32_t rkey;
} __attribute__((packed));

/* RNBD; the number of a response is that of the message and one. */
enum {
	RNBD_SESS_INFO = 0, RNBD_OPEN = 2, RNBD_IO = 4, RNBD_CLOSE = 5, RNBD_NEWS = 6, RNBD_HOST = 9,
	RNBD_RESERVATION = 10, RNBD_DISCOVER = 12,
};

enum { OP_READ, OP_WRITE, OP_FLUSH, OP_DISCARD, OP_SECURE_ERASE, OP_WRITE_ZEROES };

struct hdr {
	uint16_t type, padding;
} __attribute__((packed));

struct sess_info {
	struct hdr hdr;
	uint8_t ver, reserved0[3];
	uint32_t magic, features;
	uint64_t nonce;
	uint8_t reserved1[12];
} __attribute__((packed));

struct open_msg {
	struct hdr hdr;
	uint8_t access_mode, io_mode;
	char name[NAME_SIZE];
	uint8_t reserved[3];
} __attribute__((packed));

struct open_rsp {
	struct hdr hdr;
	uint32_t device_id;
	uint64_t nsectors;
	uint32_t max_hw_sectors, max_write_zeroes_sectors, max_discard_sectors;
	uint32_t discard_granularity, discard_alignment;
	uint16_t physical_block_size, logical_block_size, max_segments, secure_discard;
	uint8_t rotational, cache_policy, io_mode, reserved[9];
	char wwid[64];
	uint8_t reserved1[64];
} __attribute__((packed));

struct io_msg {
	struct hdr hdr;
	uint32_t device_id;
	uint64_t sector;
	uint32_t rw, bi_size;
	uint16_t prio;
	uint8_t padding[6];
} __attribute__((packed));

struct close_msg {
	struct hdr hdr;
	uint32_t device_id;
} __attribute__((packed));

struct news_msg {
	struct hdr hdr;
	uint32_t since, first_device_id;
} __attribute__((packed));

struct news_rsp {
	struct hdr hdr;
	uint32_t sequence;
	uint16_t count, flags;
	uint32_t drain_ms;
} __attribute__((packed));

struct news_record {
	uint32_t device_id, flags;
	uint64_t nsectors;
	uint32_t max_hw_sectors, max_write_zeroes_sectors, max_discard_sectors, max_secure_erase_sectors;
	uint32_t discard_granularity, discard_alignment, physical_block_size, logical_block_size, max_segments;
	uint8_t close_reason, reserved[11];
} __attribute__((packed));

struct host_msg {
	struct hdr hdr;
	uint32_t reserved;
	uint8_t uuid[16];
} __attribute__((packed));

struct reservation_msg {
	struct hdr hdr;
	uint32_t device_id;
	uint8_t action, kind;
	uint16_t flags;
	uint32_t sequence;
	uint64_t key, service_key;
} __attribute__((packed));

struct reservation_rsp {
	struct hdr hdr;
	uint32_t generation;
	uint64_t key;
	uint8_t kind, reserved0;
	uint16_t count;
	uint32_t reserved1;
	uint64_t keys[64];
} __attribute__((packed));

struct discover_msg {
	struct hdr hdr;
	char after[NAME_SIZE];
	uint8_t reserved[5];
} __attribute__((packed));

struct discover_rsp {
	struct hdr hdr;
	uint16_t count, flags;
	uint8_t reserved[8];
} __attribute__((packed));

struct discover_disk {
	uint64_t nsectors;
	uint32_t logical_block_size;
	uint16_t sessions;
	uint8_t modes, flags, path_len, wwid_len;
	uint16_t reserved;
} __attribute__((packed));

_Static_assert(sizeof(struct conn_req) == 56 && sizeof(struct conn_rsp) == 56, "connection messages");
_Static_assert(sizeof(struct info_req) == 272 && sizeof(struct read_msg) == 24, "messages of the transport");
_Static_assert(sizeof(struct sess_info) == 36 && sizeof(struct open_msg) == 264, "session information and open");
_Static_assert(sizeof(struct open_rsp) == 184 && sizeof(struct io_msg) == 32, "open response and request");
_Static_assert(sizeof(struct news_rsp) == 16 && sizeof(struct news_record) == 64, "news");
_Static_assert(sizeof(struct host_msg) == 24 && sizeof(struct reservation_msg) == 32, "host and reservation");
_Static_assert(sizeof(struct reservation_rsp) == 536, "reservation response");
_Static_assert(sizeof(struct discover_msg) == 264 && sizeof(struct discover_rsp) == 16, "discovery");
_Static_assert(sizeof(struct discover_disk) == 20, "disk of a discover response");

#endif
