// SPDX-License-Identifier: GPL-2.0
#include "rounds.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hub.h"

/* How long a round may take, and what it left may stay, in seconds. */
#define ROUND_SECONDS 600
#define LEFT_SECONDS 120
#define TICK_MS 20

static const char *const names[KINDS] = {
	[KIND_CONNECT] = "connect", [KIND_INFO] = "info", [KIND_SESS_INFO] = "sess_info", [KIND_OPEN] = "open",
	[KIND_IO] = "io", [KIND_CLOSE] = "close", [KIND_NEWS] = "news", [KIND_HOST] = "host",
	[KIND_RESERVATION] = "reservation", [KIND_DISCOVER] = "discover", [KIND_JUNK] = "junk",
	[KIND_IMMEDIATE] = "immediate", [KIND_SEND] = "send", [KIND_WRITE] = "write", [KIND_KEY] = "key",
	[KIND_COALESCED] = "coalesced", [KIND_HEARTBEAT] = "heartbeat", [KIND_DOORBELL] = "doorbell",
	[KIND_PATH_END] = "path_end", [KIND_DISCONNECT] = "disconnect",
	[OUTCOME_ESTABLISHED] = "established", [OUTCOME_CARRIED_OUT] = "carried_out",
	[OUTCOME_REFUSED] = "refused", [OUTCOME_LOST] = "lost",
};

struct shared {
	atomic_ullong counts[KINDS];
	atomic_bool is_over;
	atomic_bool has_problem;
	char problem[512];
};

static struct shared *shared;

enum state { FREE, RUNNING, LEFT };

struct slot {
	enum state state;
	pid_t pid;
	struct round round;
	char left[256];
	int64_t since;
};

void count(enum kind kind)
{
	atomic_fetch_add_explicit(&shared->counts[kind], 1, memory_order_relaxed);
}

bool is_over(void)
{
	return atomic_load_explicit(&shared->is_over, memory_order_relaxed);
}

bool problem(const struct round *round, const char *format, ...)
{
	va_list arguments;
	int length;

	/* The first one counts. */
	if (atomic_exchange(&shared->has_problem, true))
		return false;
	length = snprintf(shared->problem, sizeof(shared->problem), "seed %llu round %llu: ",
			  (unsigned long long)round->options->seed, (unsigned long long)round->number);
	va_start(arguments, format);
	vsnprintf(shared->problem + length, sizeof(shared->problem) - length, format, arguments);
	va_end(arguments);
	return false;
}

void trace(const struct round *round, const char *format, ...)
{
	va_list arguments;

	if (!round->options->trace)
		return;
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
}

static uint64_t messages(void)
{
	uint64_t sum = 0;

	for (int kind = 0; kind < OUTCOMES; kind++)
		sum += atomic_load_explicit(&shared->counts[kind], memory_order_relaxed);
	return sum;
}

/* The kernel's log says which round ran: the machine may not come back. */
static void note_in_log(const struct campaign *campaign, const struct round *round)
{
	FILE *log = fopen("/dev/kmsg", "w");

	if (!log)
		return;
	fprintf(log, "campaign: %s seed %llu round %llu\n", campaign->name,
		(unsigned long long)round->options->seed, (unsigned long long)round->number);
	fclose(log);
}

static void begin(const struct campaign *campaign, struct slot *slot)
{
	note_in_log(campaign, &slot->round);
	campaign->left(&slot->round, slot->left, sizeof(slot->left));
	slot->since = now_ms();
	slot->state = RUNNING;
	slot->pid = fork();
	if (slot->pid != 0)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(ROUND_SECONDS);
	_exit(campaign->run(&slot->round) ? 0 : 1);
}

static void ended(struct slot *slot, int status)
{
	slot->state = LEFT;
	slot->since = now_ms();
	if (WIFSIGNALED(status))
		problem(&slot->round, "its process ended with signal %d%s", WTERMSIG(status),
			WTERMSIG(status) == SIGALRM ? ": it took too long" : "");
	else if (WEXITSTATUS(status) != 0)
		problem(&slot->round, "its process ended with exit code %d", WEXITSTATUS(status));
}

/* Look after a slot; true if it is free. */
static bool look_after(struct slot *slot)
{
	int status;

	if (slot->state == RUNNING && waitpid(slot->pid, &status, WNOHANG) == slot->pid)
		ended(slot, status);
	if (slot->state == LEFT) {
		bool is_late = now_ms() - slot->since > LEFT_SECONDS * 1000;

		if (access(slot->left, F_OK) != 0 || is_late)
			slot->state = FREE;
		if (slot->state == FREE && is_late)
			problem(&slot->round, "%s stays after the round's end", slot->left);
	}
	return slot->state == FREE;
}

static void print_counts(const struct campaign *campaign, uint64_t next)
{
	const char *separator = "";

	printf("{\"campaign\": \"%s\", \"next\": %llu, \"messages\": {", campaign->name, (unsigned long long)next);
	for (int kind = 0; kind < KINDS; kind++) {
		unsigned long long number = atomic_load(&shared->counts[kind]);

		if (kind == OUTCOMES) {
			printf("}, \"outcomes\": {");
			separator = "";
		}
		if (number) {
			printf("%s\"%s\": %llu", separator, names[kind], number);
			separator = ", ";
		}
	}
	printf("}}\n");
}

int run_campaign(const struct campaign *campaign, const struct options *options)
{
	struct slot slots[MOST_JOBS] = { 0 };
	uint64_t next = options->first;
	int64_t end = now_ms() + options->milliseconds;
	struct timespec tick = { .tv_nsec = TICK_MS * 1000000 };
	bool is_idle;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	do {
		if ((options->milliseconds && now_ms() > end) || atomic_load(&shared->has_problem) ||
		    (options->messages && messages() >= options->messages))
			atomic_store(&shared->is_over, true);
		is_idle = true;
		for (unsigned int at = 0; at < options->jobs; at++) {
			bool is_free = look_after(&slots[at]);
			bool are_left = !options->rounds || next - options->first < options->rounds;

			if (is_free && are_left && !is_over()) {
				slots[at].round = (struct round){ options, next++, at };
				begin(campaign, &slots[at]);
				is_free = false;
			}
			is_idle &= is_free;
		}
		nanosleep(&tick, NULL);
	} while (!is_idle);
	print_counts(campaign, next);
	if (!atomic_load(&shared->has_problem))
		return 0;
	fprintf(stderr, "%s\n", shared->problem);
	return 1;
}
