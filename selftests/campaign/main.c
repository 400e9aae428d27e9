// SPDX-License-Identifier: GPL-2.0
/*
 * Peers that lie, by the thousand: `campaign clients|servers NAME=VALUE...`, see usage(). Prints how many messages of
 * each kind were sent, as JSON; exit code 1 says that a peer did what it must not, and stderr what that was.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clients.h"
#include "servers.h"

static int usage(void)
{
	fputs("usage: campaign clients|servers address=ADDRESS [address6=ADDRESS] [port=1234] [seed=1] [first=0]\n"
	      "       [rounds=NUMBER] [messages=NUMBER] [milliseconds=NUMBER] [jobs=4] [disk=PATH]... [trace=1]\n"
	      "clients: attack the server of this machine, by its addresses; a disk for each job.\n"
	      "servers: attack the client of this machine, which maps by these addresses from `port' and up.\n",
	      stderr);
	return 2;
}

static bool set_number(struct options *options, const char *name, const char *value)
{
	char *end;
	unsigned long long number = strtoull(value, &end, 0);

	if (*end || !*value)
		return false;
	if (!strcmp(name, "port"))
		options->port = number;
	else if (!strcmp(name, "seed"))
		options->seed = number;
	else if (!strcmp(name, "first"))
		options->first = number;
	else if (!strcmp(name, "rounds"))
		options->rounds = number;
	else if (!strcmp(name, "messages"))
		options->messages = number;
	else if (!strcmp(name, "milliseconds"))
		options->milliseconds = number;
	else if (!strcmp(name, "jobs"))
		options->jobs = number;
	else if (!strcmp(name, "trace"))
		options->trace = number;
	else
		return false;
	return true;
}

static bool set_option(struct options *options, unsigned int *disks, char *argument)
{
	char *value = strchr(argument, '=');

	if (!value)
		return false;
	*value++ = 0;
	if (!strcmp(argument, "address"))
		options->address = value;
	else if (!strcmp(argument, "address6"))
		options->address6 = value;
	else if (strcmp(argument, "disk"))
		return set_number(options, argument, value);
	else if (*disks == MOST_JOBS)
		return false;
	else
		options->disks[(*disks)++] = value;
	return true;
}

int main(int argc, char **argv)
{
	struct options options = { .port = 1234, .seed = 1, .jobs = 4 };
	const struct campaign *campaign;
	unsigned int disks = 0;

	if (argc < 2)
		return usage();
	for (int at = 2; at < argc; at++)
		if (!set_option(&options, &disks, argv[at]))
			return usage();
	campaign = !strcmp(argv[1], "clients") ? &clients : !strcmp(argv[1], "servers") ? &servers : NULL;
	if (!campaign || !options.address || !options.jobs || options.jobs > MOST_JOBS ||
	    (campaign == &clients && disks < options.jobs))
		return usage();
	return run_campaign(campaign, &options);
}
