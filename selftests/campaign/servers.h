/* SPDX-License-Identifier: GPL-2.0 */
/* Servers that keep to the protocol up to a point and then lie. */
#ifndef SERVERS_H
#define SERVERS_H

#include "rounds.h"

extern const struct campaign servers;

#endif
