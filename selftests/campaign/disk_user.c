// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE
#include "disk_user.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/pr.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "numbers.h"

#define THREADS 4
#define PAGE 4096
#define LONGEST (16 * PAGE)
/* The beginning of the disk that is used, in pages. */
#define PAGES 200
/* So many requests of a thread may fail, one after the other, before it gives up. */
#define MOST_FAILURES 100
#define CLIENT "/sys/class/rnbd-client/ctl"
/* Streams of decisions, see numbers.h; the server's are below. */
#define STREAM_USER 100

struct worker {
	pthread_t thread;
	const struct round *round;
	const char *disk;
	unsigned int index;
	uint64_t requests;
};

static atomic_uint running;

static void pause_ms(unsigned int milliseconds)
{
	struct timespec time = { milliseconds / 1000, milliseconds % 1000 * 1000000L };

	nanosleep(&time, NULL);
}

/* Write a file of the kernel in one piece. */
static bool tell(const char *path, const char *text)
{
	int file = open(path, O_WRONLY);
	bool is_done;

	if (file < 0)
		return false;
	is_done = write(file, text, strlen(text)) == (ssize_t)strlen(text);
	close(file);
	return is_done;
}

static long reserve(int disk, struct numbers *numbers)
{
	uint64_t key = below(numbers, 3), other = below(numbers, 3);
	uint32_t kind = 1 + below(numbers, 6);
	struct pr_reservation reservation = { .key = key, .type = kind };
	struct pr_registration registration = { .old_key = key, .new_key = other };
	struct pr_preempt preempt = { .old_key = key, .new_key = other, .type = kind };
	struct pr_clear clear = { .key = key };

	switch (below(numbers, 5)) {
	case 0:
		return ioctl(disk, IOC_PR_REGISTER, &registration);
	case 1:
		return ioctl(disk, IOC_PR_RESERVE, &reservation);
	case 2:
		return ioctl(disk, IOC_PR_RELEASE, &reservation);
	case 3:
		return ioctl(disk, IOC_PR_PREEMPT, &preempt);
	default:
		return ioctl(disk, IOC_PR_CLEAR, &clear);
	}
}

/* One request; false if it failed. */
static bool request(int disk, void *buffer, struct numbers *numbers)
{
	static const size_t lengths[] = { 512, PAGE, PAGE, PAGE, 2 * PAGE };
	size_t length = likely(numbers, 30000) ? LONGEST : CHOICE(numbers, lengths);
	off_t offset = (off_t)below(numbers, PAGES) * PAGE;
	uint64_t range[2] = { offset, PAGE }, how = below(numbers, 100);

	if (how < 42)
		return pread(disk, buffer, length, offset) == (ssize_t)length;
	if (how < 84)
		return pwrite(disk, buffer, length, offset) == (ssize_t)length;
	if (how < 88)
		return fdatasync(disk) == 0;
	/* What the disk does not have fails without a message. */
	if (how < 91)
		ioctl(disk, BLKDISCARD, range);
	else if (how < 94)
		ioctl(disk, BLKZEROOUT, range);
	else if (how < 96)
		ioctl(disk, BLKSECDISCARD, range);
	else
		reserve(disk, numbers);
	return true;
}

static void *work(void *argument)
{
	struct worker *worker = argument;
	void *buffer = aligned_alloc(PAGE, LONGEST);
	int disk = open(worker->disk, O_RDWR | O_DIRECT | O_CLOEXEC);
	unsigned int failures = 0;

	if (buffer)
		memset(buffer, worker->index, LONGEST);
	for (uint64_t at = 0; buffer && at < worker->requests && failures < MOST_FAILURES && !is_over(); at++) {
		struct numbers numbers = numbers_of(worker->round->options->seed, worker->round->number,
						    STREAM_USER + worker->index, at);

		if (disk < 0)
			disk = open(worker->disk, O_RDWR | O_DIRECT | O_CLOEXEC);
		if (disk >= 0 && request(disk, buffer, &numbers)) {
			failures = 0;
			continue;
		}
		/* The path may be on its way back. */
		pause_ms(failures++ < 20 ? 5 : 50);
	}
	if (disk >= 0)
		close(disk);
	free(buffer);
	atomic_fetch_sub(&running, 1);
	return NULL;
}

/* Ask the server for its disks, and read to the end. */
static void discover(const char *session)
{
	int file = open("/dev/rnbd-discover", O_RDWR | O_CLOEXEC);
	char line[64], buffer[PAGE];

	if (file < 0)
		return;
	snprintf(line, sizeof(line), "sessname=%s", session);
	if (write(file, line, strlen(line)) > 0)
		while (read(file, buffer, sizeof(buffer)) > 0)
			;
	close(file);
}

/* What an administrator does meanwhile. */
static void administer(const struct round *round, const char *session, const char *folder, uint64_t at)
{
	struct numbers numbers = numbers_of(round->options->seed, round->number, STREAM_USER + THREADS, at);
	char path[512], text[256];
	int file;

	switch (below(&numbers, 4)) {
	case 0:
		snprintf(path, sizeof(path), "%s/rnbd/remap_device", folder);
		tell(path, "1");
		break;
	case 1:
		discover(session);
		break;
	default:
		snprintf(path, sizeof(path), "%s/rnbd/%s", folder, below(&numbers, 2) ? "state" : "mapping_path");
		file = open(path, O_RDONLY | O_CLOEXEC);
		if (file >= 0) {
			while (read(file, text, sizeof(text)) > 0)
				;
			close(file);
		}
	}
}

static void use(const struct round *round, const char *session, const char *folder, const char *disk)
{
	static const uint64_t requests[] = { 20, 200, 1000 };
	struct numbers numbers = numbers_of(round->options->seed, round->number, STREAM_USER + THREADS + 1, 0);
	struct worker workers[THREADS];
	uint64_t most = CHOICE(&numbers, requests);

	atomic_store(&running, THREADS);
	for (unsigned int at = 0; at < THREADS; at++) {
		workers[at] = (struct worker){ .round = round, .disk = disk, .index = at, .requests = most };
		if (pthread_create(&workers[at].thread, NULL, work, &workers[at]) != 0)
			_exit(1);
	}
	for (uint64_t at = 0; atomic_load(&running); at++) {
		pause_ms(100);
		administer(round, session, folder, at);
	}
	for (unsigned int at = 0; at < THREADS; at++)
		pthread_join(workers[at].thread, NULL);
}

static void map_and_use(const struct round *round)
{
	const struct options *options = round->options;
	struct numbers numbers = numbers_of(options->seed, round->number, STREAM_USER + THREADS + 2, 0);
	char session[32], text[512], folder[256], target[256], disk[300];
	bool is_twofold = options->address6 && below(&numbers, 3) == 0;
	ssize_t length;

	snprintf(session, sizeof(session), LIAR_SESSION, round->slot);
	snprintf(text, sizeof(text), "sessname=%s path=ip:%s%s%s dest_port=%u device_path=" LIAR_DISK, session,
		 options->address, is_twofold ? " path=ip:" : "", is_twofold ? options->address6 : "",
		 options->port + round->slot);
	if (!tell(CLIENT "/map_device", text))
		return;
	snprintf(folder, sizeof(folder), CLIENT "/devices/!dev!liar@%s", session);
	length = readlink(folder, target, sizeof(target) - 1);
	if (length <= 0)
		return;
	target[length] = 0;
	snprintf(disk, sizeof(disk), "/dev/%s", strrchr(target, '/') ? strrchr(target, '/') + 1 : target);
	use(round, session, folder, disk);
	snprintf(text, sizeof(text), "%s/rnbd/unmap_device", folder);
	tell(text, "force");
}

bool disk_user_new(const struct round *round, struct disk_user *user)
{
	int ends[2];
	char byte;

	if (pipe2(ends, O_CLOEXEC) != 0)
		return problem(round, "no pipe: %m");
	user->start = ends[1];
	user->pid = fork();
	if (user->pid < 0)
		return problem(round, "no process: %m");
	if (user->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ends[1]);
		if (read(ends[0], &byte, 1) == 1)
			map_and_use(round);
		_exit(0);
	}
	close(ends[0]);
	user->ended = syscall(SYS_pidfd_open, user->pid, 0);
	return user->ended >= 0 || problem(round, "no file of the process: %m");
}

bool disk_user_begin(const struct disk_user *user)
{
	return write(user->start, "", 1) == 1;
}
