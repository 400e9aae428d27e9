/* SPDX-License-Identifier: GPL-2.0 */
/* Clients that keep to the protocol up to a point and then lie. */
#ifndef CLIENTS_H
#define CLIENTS_H

#include "rounds.h"

extern const struct campaign clients;

#endif
