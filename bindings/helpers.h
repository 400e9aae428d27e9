/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Callable forms of the kernel's inline functions and macros that the crate
 * needs. Each has the name of what it calls behind rnbd_helper_.
 */

#ifndef RNBD_HELPERS_H
#define RNBD_HELPERS_H

#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/device.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/hdreg.h>
#include <linux/idr.h>
#include <linux/jump_label.h>
#include <linux/percpu-refcount.h>
#include <linux/pr.h>
#include <linux/preempt.h>
#include <linux/rcupdate.h>
#include <linux/sched/mm.h>
#include <rdma/ib_verbs.h>

/* helpers_gate.c */
bool rnbd_helper_percpu_ref_tryget_live(struct percpu_ref *ref);
void rnbd_helper_percpu_ref_get(struct percpu_ref *ref);
void rnbd_helper_percpu_ref_put(struct percpu_ref *ref);

/* helpers_sys.c */
unsigned int rnbd_helper_next_possible_cpu(unsigned int start);
unsigned int rnbd_helper_num_online_cpus(void);
void rnbd_helper_dev_set_uevent_suppress(struct device *dev, int val);
void rnbd_helper_synchronize_rcu_tasks(void);
bool rnbd_helper_may_sleep(void);
unsigned int rnbd_helper_memalloc_noio_save(void);
void rnbd_helper_memalloc_noio_restore(unsigned int flags);

/* helpers_static_key.c */

/* A static key: code that looks at it is a jump that is patched out while it is off. */
struct rnbd_static_key {
	struct static_key_false key;
};

/* On while a client times the requests of a disk. */
extern struct rnbd_static_key rnbd_client_times_key;
/* On while a server times the requests of a device. */
extern struct rnbd_static_key rnbd_server_times_key;

void rnbd_helper_static_key_inc(struct rnbd_static_key *key);
void rnbd_helper_static_key_dec(struct rnbd_static_key *key);

/* helpers_bdev.c */
struct block_device;
struct kobject;

struct rnbd_bdev_limits {
	unsigned int logical_block_size;
	unsigned int physical_block_size;
	unsigned int max_segments;
	unsigned int max_sectors;
	unsigned int max_hw_sectors;
	unsigned int max_write_zeroes_sectors;
	unsigned int max_discard_sectors;
	unsigned int max_secure_erase_sectors;
	unsigned int discard_granularity;
	unsigned int discard_alignment;
	bool write_cache;
	bool fua;
	bool rotational;
};

struct file *rnbd_helper_bdev_file_open_by_path(const char *path, bool write);
void rnbd_helper_bdev_limits(struct block_device *bdev,
			     struct rnbd_bdev_limits *limits);
bool rnbd_helper_bdev_is_gone(struct block_device *bdev);
int rnbd_helper_bdev_name(struct block_device *bdev, char *buf, size_t size);
int rnbd_helper_bdev_unique_id(struct block_device *bdev, u8 id[16], int type);
bool rnbd_helper_bdev_is_held(const struct block_device *bdev);
u32 rnbd_helper_bdev_partno(const struct block_device *bdev);
u64 rnbd_helper_bdev_diskseq(const struct block_device *bdev);
struct kobject *rnbd_helper_bdev_disk_kobj(struct block_device *bdev);
bool rnbd_helper_bdev_may_sleep(struct block_device *bdev);

/* helpers_directory.c */
struct file;

struct file *rnbd_helper_directory_open(const char *name);
ssize_t rnbd_helper_directory_read(struct file *dir, const char *name, void *buf, size_t size);
int rnbd_helper_directory_write(struct file *dir, const char *name, const void *buf, size_t size);
int rnbd_helper_directory_rename(struct file *dir, const char *from, const char *to,
				 bool *begun);
int rnbd_helper_directory_remove(struct file *dir, const char *name, bool *begun);
bool rnbd_helper_directory_holds(struct file *dir, struct file *file);
int rnbd_helper_directory_sync(struct file *dir);

/* helpers_file.c */
struct bio_vec;
struct kiocb;
struct mempool;
struct path;

struct rnbd_file_facts {
	u64 size;
	u64 ino;
	u32 dev;
	u32 generation;
	u8 fs_uuid[16];
	u32 block_size;
	u32 offset_alignment;
	u32 memory_alignment;
	bool says_alignment;
	bool has_fallocate;
	bool has_fsync;
};

int rnbd_helper_kern_path(const char *name, struct path *path);
unsigned int rnbd_helper_path_mode(const struct path *path);
int rnbd_helper_path_id(const struct path *path, u32 *dev, u64 *ino);
u32 rnbd_helper_path_rdev(const struct path *path);
struct file *rnbd_helper_open_regular(const struct path *path, bool write, bool direct);
bool rnbd_helper_file_has_data(struct file *file);
int rnbd_helper_file_facts(struct file *file, struct rnbd_file_facts *facts);
u64 rnbd_helper_file_size(const struct file *file);
char *rnbd_helper_file_path(struct file *file, char *buf, int size);
ssize_t rnbd_helper_call_iter(struct kiocb *iocb, const struct bio_vec *vecs,
			      unsigned long nr_vecs, size_t len, size_t skip, bool write);
void rnbd_helper_kiocb_end_write(struct kiocb *iocb);
int rnbd_helper_file_iocb_flags(const struct file *file);
struct mempool *rnbd_helper_mempool_create_kmalloc_pool(int min_nr, size_t size);

/* helpers_listing.c */

/* What a folder has under a name. */
enum rnbd_entry {
	RNBD_ENTRY_OTHER,
	RNBD_ENTRY_FOLDER,
	RNBD_ENTRY_LINK,
	RNBD_ENTRY_FILE,
	RNBD_ENTRY_BLOCK_DEVICE,
	RNBD_ENTRY_UNKNOWN,
};

typedef void (*rnbd_take_name_t)(void *taker, const char *name, int len, enum rnbd_entry entry);

int rnbd_helper_list_folder(const char *name, unsigned int max, rnbd_take_name_t take,
			    void *taker);
bool rnbd_helper_path_is_read_only(const struct path *path);

/* helpers_disk.c */

/* The longest name of a disk in the world. */
#define RNBD_WWID_LEN	64

/* What the block layer calls of a disk of ours, and what its attributes call. */
struct rnbd_disk_operations {
	struct block_device_operations block;
	/* Writes the disk's name to `wwid`, at most RNBD_WWID_LEN bytes; its length, 0 for none. */
	size_t (*wwid)(struct gendisk *disk, char *wwid);
};

int rnbd_helper_add_disk(struct gendisk *disk);
bool rnbd_helper_limits_begin(struct request_queue *q, struct queue_limits *limits, unsigned int ms);
bool rnbd_helper_limits_wait(struct request_queue *q, unsigned int ms);
int rnbd_helper_limits_commit(struct request_queue *q, struct queue_limits *limits);
void rnbd_helper_limits_cancel(struct request_queue *q);
bool rnbd_helper_times_begin(struct request_queue *q);
void rnbd_helper_times_end(struct request_queue *q, bool was_set);

/* helpers_block.c */
struct request *rnbd_helper_rq_list_pop(struct rq_list *list);
u64 rnbd_helper_request_begun_ns(const struct request *rq);
void rnbd_helper_ida_init(struct ida *ida);

/* Macros whose casts bindgen does not see through. */
enum {
	RNBD_BLK_STS_OK = (__force int)BLK_STS_OK,
	RNBD_BLK_STS_NOTSUPP = (__force int)BLK_STS_NOTSUPP,
	RNBD_BLK_STS_RESOURCE = (__force int)BLK_STS_RESOURCE,
	RNBD_BLK_STS_DEV_RESOURCE = (__force int)BLK_STS_DEV_RESOURCE,
	RNBD_BLK_STS_IOERR = (__force int)BLK_STS_IOERR,
	RNBD_BLK_STS_TIMEOUT = (__force int)BLK_STS_TIMEOUT,
	RNBD_BLK_STS_AGAIN = (__force int)BLK_STS_AGAIN,
	RNBD_BLK_STS_DM_REQUEUE = (__force int)BLK_STS_DM_REQUEUE,
	RNBD_REQ_OP_MASK = (__force int)REQ_OP_MASK,
	RNBD_REQ_SYNC = (__force int)REQ_SYNC,
	RNBD_REQ_FUA = (__force int)REQ_FUA,
	RNBD_REQ_PREFLUSH = (__force int)REQ_PREFLUSH,
	RNBD_REQ_NOUNMAP = (__force int)REQ_NOUNMAP,
	RNBD_REQ_FAILFAST = (__force int)(REQ_FAILFAST_DEV | REQ_FAILFAST_TRANSPORT | REQ_FAILFAST_DRIVER),
	RNBD_BLK_FEAT_WRITE_CACHE = (__force int)BLK_FEAT_WRITE_CACHE,
	RNBD_BLK_FEAT_FUA = (__force int)BLK_FEAT_FUA,
	RNBD_BLK_FEAT_NOWAIT = (__force int)BLK_FEAT_NOWAIT,
	RNBD_BLK_OPEN_WRITE = (__force int)BLK_OPEN_WRITE,
	RNBD_BLK_MAX_BLOCK_SIZE = BLK_MAX_BLOCK_SIZE,
	RNBD_PERCPU_REF_ALLOW_REINIT = PERCPU_REF_ALLOW_REINIT,
	RNBD_IOCB_DSYNC = (__force int)IOCB_DSYNC,
	RNBD_FALLOC_KEEP_SIZE = FALLOC_FL_KEEP_SIZE,
	RNBD_FALLOC_PUNCH_HOLE = FALLOC_FL_PUNCH_HOLE,
	RNBD_FALLOC_ZERO_RANGE = FALLOC_FL_ZERO_RANGE,
};

/* helpers_rdma.c */
bool rnbd_helper_ib_device_try_get(struct ib_device *dev);
int rnbd_helper_ibdev_to_node(struct ib_device *dev);
void rnbd_helper_ib_free_cq(struct ib_cq *cq);
u64 rnbd_helper_ib_dma_map_single(struct ib_device *dev, void *cpu_addr,
				  size_t size, enum dma_data_direction direction);
void rnbd_helper_ib_dma_unmap_single(struct ib_device *dev, u64 addr,
				     size_t size, enum dma_data_direction direction);
int rnbd_helper_ib_dma_mapping_error(struct ib_device *dev, u64 dma_addr);
int rnbd_helper_ib_dma_map_sg(struct ib_device *dev, struct scatterlist *sg,
			      int nents, enum dma_data_direction direction,
			      bool is_sink);
void rnbd_helper_ib_dma_unmap_sg(struct ib_device *dev, struct scatterlist *sg,
				 int nents, enum dma_data_direction direction,
				 bool is_sink);
void rnbd_helper_ib_dma_sync_single_for_cpu(struct ib_device *dev, u64 addr,
					    size_t size, enum dma_data_direction dir);
void rnbd_helper_ib_dma_sync_single_for_device(struct ib_device *dev, u64 addr,
					       size_t size, enum dma_data_direction dir);
unsigned int rnbd_helper_sg_to_sges(struct scatterlist *sgl, unsigned int nents,
				    u32 lkey, struct ib_sge *out);
void rnbd_helper_sg_set_page(struct scatterlist *sg, struct page *page,
			     unsigned int len, unsigned int offset);
void rnbd_helper_sg_mark_end(struct scatterlist *sg);
unsigned int rnbd_helper_sg_copy_entries(struct scatterlist *to, unsigned int room,
					 struct scatterlist *from, unsigned int nents,
					 size_t *bytes);
void rnbd_helper_sg_set_dma(struct scatterlist *sg, u64 addr, unsigned int len);
struct page *rnbd_helper_alloc_zeroed_pages(int node, unsigned int order, bool needed);
void *rnbd_helper_page_address(const struct page *page);
void rnbd_helper_memcpy(void *to, const void *from, size_t len);
size_t rnbd_helper_sg_copy_from_buffer(struct scatterlist *sgl, unsigned int nents,
				       const void *buf, size_t len);
size_t rnbd_helper_sg_copy_to_buffer(struct scatterlist *sgl, unsigned int nents,
				       void *buf, size_t len);
void rnbd_helper_memzero(void *to, size_t len);
unsigned long rnbd_helper_available_pages(void);
int rnbd_helper_peek(void *to, const void *from, size_t len);

/* helpers_keys.c */
struct key;

struct key *rnbd_helper_root_user_keyring(void);
ssize_t rnbd_helper_logon_key_read(struct key *keyring, const char *description, u8 *buf,
				   size_t size);
void rnbd_helper_key_put(struct key *key);
void rnbd_helper_hmac_sha256(const u8 *key, size_t key_len, const u8 *data, size_t data_len,
			     u8 *out);
bool rnbd_helper_crypto_memneq(const u8 *one, const u8 *other, size_t size);

#endif /* RNBD_HELPERS_H */
