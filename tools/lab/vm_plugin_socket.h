/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A plugin that listens on a Unix socket, which its only argument names
 * (-plugin NAME.so,socket=PATH), for commands of a byte. One client is served
 * at a time.
 */

#ifndef VM_PLUGIN_SOCKET_H
#define VM_PLUGIN_SOCKET_H

#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Held while a command is carried out. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int listener;

/* Carries out a command of the client; unless it gives 0 the connection is closed. */
static int carry_out(int client, char command);

static int receive_all(int from, void *data, size_t len)
{
	while (len) {
		ssize_t done = read(from, data, len);

		if (done <= 0)
			return -1;
		data = (char *)data + done;
		len -= done;
	}
	return 0;
}

static int send_all(int to, const void *data, size_t len)
{
	while (len) {
		ssize_t done = write(to, data, len);

		if (done <= 0)
			return -1;
		data = (const char *)data + done;
		len -= done;
	}
	return 0;
}

static void *serve(void *unused)
{
	for (;;) {
		int client = accept(listener, NULL, NULL);
		int error = client < 0;
		char command;

		while (!error && !receive_all(client, &command, 1)) {
			pthread_mutex_lock(&lock);
			error = carry_out(client, command);
			pthread_mutex_unlock(&lock);
		}
		if (client >= 0)
			close(client);
	}
	return unused;
}

/* Begins to serve clients, given the arguments of the plugin; 0 if that is possible. */
static int begin_to_serve(int argc, char **argv)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	pthread_t thread;

	if (argc != 1 || strncmp(argv[0], "socket=", 7) ||
	    strlen(argv[0] + 7) >= sizeof(address.sun_path))
		return -1;
	strcpy(address.sun_path, argv[0] + 7);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof(address)) ||
	    listen(listener, 1))
		return -1;
	return pthread_create(&thread, NULL, serve, NULL);
}

#endif
