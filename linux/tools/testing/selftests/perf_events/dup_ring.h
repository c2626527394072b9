/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The records in the ring buffer of an event, all of them: the buffer is mapped
 * long enough for what the tests let happen.
 */
#ifndef _SELFTESTS_PERF_EVENTS_DUP_RING_H
#define _SELFTESTS_PERF_EVENTS_DUP_RING_H

#include <sys/mman.h>

#include "dup.h"

struct ring {
	struct perf_event_mmap_page *page;
	__u64			pos;
};

static inline void map_ring(struct __test_metadata *_metadata, struct ring *ring, int fd,
			    unsigned int pages)
{
	size_t size = (1 + pages) * sysconf(_SC_PAGESIZE);

	ring->pos = 0;
	ring->page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ASSERT_NE(ring->page, MAP_FAILED);
}

/* Returns the next record of a type, or NULL after the last one. */
static inline struct perf_event_header *next_record(struct __test_metadata *_metadata,
						    struct ring *ring, __u32 type)
{
	__u64 head = __atomic_load_n(&ring->page->data_head, __ATOMIC_ACQUIRE);
	char *data = (char *)ring->page + ring->page->data_offset;
	struct perf_event_header *header;

	ASSERT_LE(head, ring->page->data_size)
		TH_LOG("the ring is too short");
	while (ring->pos < head) {
		header = (struct perf_event_header *)(data + ring->pos);
		ASSERT_GE(header->size, sizeof(*header));
		ring->pos += header->size;
		if (header->type == type)
			return header;
	}

	return NULL;
}

#endif /* _SELFTESTS_PERF_EVENTS_DUP_RING_H */
