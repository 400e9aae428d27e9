// SPDX-License-Identifier: GPL-2.0
/*
 * Callable forms of the inline functions of the RDMA, DMA and page headers;
 * see helpers.h.
 */

#include <linux/export.h>
#include <linux/gfp.h>
#include <linux/highmem.h>
#include <linux/irq_poll.h>
#include <linux/mm.h>
#include <linux/nodemask.h>
#include <linux/rcupdate.h>
#include <linux/scatterlist.h>

#include "helpers.h"

bool rnbd_helper_ib_device_try_get(struct ib_device *dev)
{
	return ib_device_try_get(dev);
}
EXPORT_SYMBOL_GPL(rnbd_helper_ib_device_try_get);

int rnbd_helper_ibdev_to_node(struct ib_device *dev)
{
	return ibdev_to_node(dev);
}
EXPORT_SYMBOL_GPL(rnbd_helper_ibdev_to_node);

/*
 * As ib_free_cq(), which waits for a softirq that polls, but not for one that has
 * just stopped to do so and is still about to touch the queue (ib_poll_handler(),
 * after irq_poll_complete()). No softirq is scheduled once irq_poll is disabled;
 * none runs any more after a grace period, as softirqs are readers of RCU; and
 * ib_free_cq() wants it enabled. Nothing is in flight, so nothing is scheduled then.
 */
void rnbd_helper_ib_free_cq(struct ib_cq *cq)
{
	if (cq->poll_ctx == IB_POLL_SOFTIRQ) {
		irq_poll_disable(&cq->iop);
		synchronize_rcu_expedited();
		irq_poll_enable(&cq->iop);
	}
	ib_free_cq(cq);
}
EXPORT_SYMBOL_GPL(rnbd_helper_ib_free_cq);

u64 rnbd_helper_ib_dma_map_single(struct ib_device *dev, void *cpu_addr,
				  size_t size, enum dma_data_direction direction)
{
	return ib_dma_map_single(dev, cpu_addr, size, direction);
}
EXPORT_SYMBOL_GPL(rnbd_helper_ib_dma_map_single);

void rnbd_helper_ib_dma_unmap_single(struct ib_device *dev, u64 addr,
				     size_t size, enum dma_data_direction direction)
{
	ib_dma_unmap_single(dev, addr, size, direction);
}
EXPORT_SYMBOL_GPL(rnbd_helper_ib_dma_unmap_single);

int rnbd_helper_ib_dma_mapping_error(struct ib_device *dev, u64 dma_addr)
{
	return ib_dma_mapping_error(dev, dma_addr);
}
EXPORT_SYMBOL_GPL(rnbd_helper_ib_dma_mapping_error);

/*
 * A sink is one page that a device may write to, named many times. Nothing of
 * it is to be copied or made visible to CPUs. DMA debugging counts the mappings
 * of a cache line that a device writes to, and warns of more than seven; for a
 * sink they are meant.
 */
#define SINK_ATTRS (DMA_ATTR_SKIP_CPU_SYNC | DMA_ATTR_DEBUGGING_IGNORE_CACHELINES)

int rnbd_helper_ib_dma_map_sg(struct ib_device *dev, struct scatterlist *sg,
			      int nents, enum dma_data_direction direction,
			      bool is_sink)
{
	return ib_dma_map_sg_attrs(dev, sg, nents, direction,
				   is_sink ? SINK_ATTRS : 0);
}
EXPORT_SYMBOL_GPL(rnbd_helper_ib_dma_map_sg);

void rnbd_helper_ib_dma_unmap_sg(struct ib_device *dev, struct scatterlist *sg,
				 int nents, enum dma_data_direction direction,
				 bool is_sink)
{
	ib_dma_unmap_sg_attrs(dev, sg, nents, direction,
			      is_sink ? SINK_ATTRS : 0);
}
EXPORT_SYMBOL_GPL(rnbd_helper_ib_dma_unmap_sg);

void rnbd_helper_ib_dma_sync_single_for_cpu(struct ib_device *dev, u64 addr,
					    size_t size, enum dma_data_direction dir)
{
	ib_dma_sync_single_for_cpu(dev, addr, size, dir);
}
EXPORT_SYMBOL_GPL(rnbd_helper_ib_dma_sync_single_for_cpu);

void rnbd_helper_ib_dma_sync_single_for_device(struct ib_device *dev, u64 addr,
					       size_t size, enum dma_data_direction dir)
{
	ib_dma_sync_single_for_device(dev, addr, size, dir);
}
EXPORT_SYMBOL_GPL(rnbd_helper_ib_dma_sync_single_for_device);

/* One work request's scatter list out of a DMA-mapped scatterlist. */
unsigned int rnbd_helper_sg_to_sges(struct scatterlist *sgl, unsigned int nents,
				    u32 lkey, struct ib_sge *out)
{
	struct scatterlist *sg;
	unsigned int i;

	for_each_sg(sgl, sg, nents, i) {
		out[i].addr = sg_dma_address(sg);
		out[i].length = sg_dma_len(sg);
		out[i].lkey = lkey;
	}
	return nents;
}
EXPORT_SYMBOL_GPL(rnbd_helper_sg_to_sges);

void rnbd_helper_sg_set_page(struct scatterlist *sg, struct page *page,
			     unsigned int len, unsigned int offset)
{
	sg_set_page(sg, page, len, offset);
}
EXPORT_SYMBOL_GPL(rnbd_helper_sg_set_page);

void rnbd_helper_sg_mark_end(struct scatterlist *sg)
{
	sg_mark_end(sg);
}
EXPORT_SYMBOL_GPL(rnbd_helper_sg_mark_end);

/*
 * Copies the first `nents` entries of a list, which may be chained, to an array
 * of `room` entries; their length in bytes goes to `bytes`. Returns how many
 * were copied: none unless all could be.
 */
unsigned int rnbd_helper_sg_copy_entries(struct scatterlist *to, unsigned int room,
					 struct scatterlist *from, unsigned int nents,
					 size_t *bytes)
{
	unsigned int i;

	if (!nents || nents > room)
		return 0;
	*bytes = 0;
	for (i = 0; i < nents; i++, from = sg_next(from)) {
		/* The list may be shorter than its user says. */
		if (!from || !sg_page(from) || !from->length ||
		    check_add_overflow(*bytes, from->length, bytes))
			return 0;
		sg_unmark_end(&to[i]);
		sg_set_page(&to[i], sg_page(from), from->length, from->offset);
	}
	sg_mark_end(&to[nents - 1]);
	return nents;
}
EXPORT_SYMBOL_GPL(rnbd_helper_sg_copy_entries);

/* For an entry that was mapped on its own, without the DMA API's knowledge of sg. */
void rnbd_helper_sg_set_dma(struct scatterlist *sg, u64 addr, unsigned int len)
{
	sg_dma_address(sg) = addr;
	sg_dma_len(sg) = len;
}
EXPORT_SYMBOL_GPL(rnbd_helper_sg_set_dma);

/*
 * Zeroed pages of the kernel's linear mapping. Several pages at once are asked
 * for without effort, as the caller falls back to fewer; single ones with some,
 * but no other program is killed for them.
 */
struct page *rnbd_helper_alloc_zeroed_pages(int node, unsigned int order, bool needed)
{
	gfp_t gfp = GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN;

	gfp |= needed ? __GFP_RETRY_MAYFAIL : __GFP_NORETRY;
	if (order)
		gfp |= __GFP_COMP;
	if (node < 0 || node >= MAX_NUMNODES || !node_online(node))
		node = NUMA_NO_NODE;
	return alloc_pages_node(node, gfp, order);
}
EXPORT_SYMBOL_GPL(rnbd_helper_alloc_zeroed_pages);

void *rnbd_helper_page_address(const struct page *page)
{
	return page_address(page);
}
EXPORT_SYMBOL_GPL(rnbd_helper_page_address);

/*
 * memcpy() on memory that a device or a peer may write at the same time. Whole
 * pages are what the data of requests mostly is, and have a faster copy.
 */
void rnbd_helper_memcpy(void *to, const void *from, size_t len)
{
	if (len == PAGE_SIZE && PAGE_ALIGNED(to) && PAGE_ALIGNED(from))
		copy_page(to, (void *)from);
	else
		memcpy(to, from, len);
}
EXPORT_SYMBOL_GPL(rnbd_helper_memcpy);

/* As sg_copy_from_buffer(), which is slow for the usual single segment. */
size_t rnbd_helper_sg_copy_from_buffer(struct scatterlist *sgl, unsigned int nents,
				       const void *buf, size_t len)
{
	if (!IS_ENABLED(CONFIG_HIGHMEM) && nents == 1 && sgl->length == len) {
		rnbd_helper_memcpy(sg_virt(sgl), buf, len);
		flush_dcache_page(sg_page(sgl));
		return len;
	}
	return sg_copy_from_buffer(sgl, nents, buf, len);
}
EXPORT_SYMBOL_GPL(rnbd_helper_sg_copy_from_buffer);

/* The other way round. */
size_t rnbd_helper_sg_copy_to_buffer(struct scatterlist *sgl, unsigned int nents,
				     void *buf, size_t len)
{
	if (!IS_ENABLED(CONFIG_HIGHMEM) && nents == 1 && sgl->length == len) {
		rnbd_helper_memcpy(buf, sg_virt(sgl), len);
		return len;
	}
	return sg_copy_to_buffer(sgl, nents, buf, len);
}
EXPORT_SYMBOL_GPL(rnbd_helper_sg_copy_to_buffer);

void rnbd_helper_memzero(void *to, size_t len)
{
	memset(to, 0, len);
}
EXPORT_SYMBOL_GPL(rnbd_helper_memzero);

/*
 * An estimate of what can be allocated without a shortage. A part is left to
 * queue pairs and to the rest of the machine.
 */
unsigned long rnbd_helper_available_pages(void)
{
	long pages = si_mem_available() - totalram_pages() / 64;

	return pages > 0 ? pages : 0;
}
EXPORT_SYMBOL_GPL(rnbd_helper_available_pages);
