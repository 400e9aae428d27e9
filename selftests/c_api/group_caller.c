// SPDX-License-Identifier: GPL-2.0
/*
 * A user of groups in C, for tests: does what callers may do, and what they must not.
 *
 * `echo CASE ADDRESS ADDRESS > /sys/module/rtrs_group_caller/parameters/run' runs a case with
 * two sessions, group-0 and group-1, with the sample rtrs_kv_server at these addresses (ip:...).
 * The write fails with EIO if something is not as it should be, and
 * /sys/module/rtrs_group_caller/parameters/failed says what.
 */

#include <linux/err.h>
#include <linux/module.h>

#include "group_caller.h"

DEFINE_FAILED();

static const struct {
	const char *name;
	int (*run)(struct rtrs_group *group);
} cases[] = {
	{ "data", group_data },
	{ "states", group_states },
	{ "each", group_each },
	{ "policies", group_policies },
	{ "lose", group_lose },
	{ "close_waits", group_close_waits },
	{ "double_put", group_double_put },
	{ "foreign", group_foreign },
	{ "busy", group_busy },
	{ "lengths", group_lengths },
	{ "closed", group_closed },
	{ "opening", group_opening },
};

static int run_case(const char *text, const struct kernel_param *parameter)
{
	struct rtrs_group *group;
	char name[32];
	int place, err;

	if (sscanf(text, "%31s %63s %63s", name, addresses[0], addresses[1]) != 3)
		return -EINVAL;
	place = find_case(cases, name);
	if (place < 0)
		return place;
	failed[0] = '\0';
	atomic_set(&fallen, 0);
	group = open_group("group");
	if (IS_ERR(group))
		return PTR_ERR(group);
	err = cases[place].run(group);
	if (!err)
		rtrs_group_close(group);
	else
		/* Permits may be out, for which closing would wait. */
		__module_get(THIS_MODULE);
	return err;
}

DEFINE_RUN(run_case);

MODULE_DESCRIPTION("A user of groups of RTRS sessions in C, for tests");
MODULE_LICENSE("GPL");
