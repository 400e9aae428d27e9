// SPDX-License-Identifier: GPL-2.0
/*
 * Makes soft-RoCE refuse queue pairs that some adapters refuse, although the
 * device says that it takes them: with more than so many scatter entries for a
 * receive, or for all sends of a queue together. Or makes it an old adapter,
 * that cannot register memory by a work request, while the module is there.
 */

#include <linux/kprobes.h>
#include <linux/module.h>
#include <rdma/ib_verbs.h>

static unsigned int max_recv_sge = UINT_MAX;
module_param(max_recv_sge, uint, 0444);
MODULE_PARM_DESC(max_recv_sge, "scatter entries of a receive");

static unsigned int max_queue_sge = UINT_MAX;
module_param(max_queue_sge, uint, 0444);
MODULE_PARM_DESC(max_queue_sge, "scatter entries of a send queue");

static unsigned int refused;
module_param(refused, uint, 0444);
MODULE_PARM_DESC(refused, "queue pairs refused so far");

static bool no_registration;
module_param(no_registration, bool, 0444);
MODULE_PARM_DESC(no_registration, "devices say that they have no fast registration");

static int note_attributes(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct ib_qp_init_attr **attributes = (void *)instance->data;

	/* rxe_qp_chk_init(device, attributes) */
	*attributes = (void *)regs_get_kernel_argument(regs, 1);
	return 0;
}

static int refuse(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct ib_qp_init_attr *attributes = *(struct ib_qp_init_attr **)instance->data;
	struct ib_qp_cap *cap = &attributes->cap;

	if (attributes->qp_type != IB_QPT_RC)
		return 0;
	if (cap->max_recv_sge > max_recv_sge ||
	    cap->max_send_wr * cap->max_send_sge > max_queue_sge) {
		refused++;
		regs_set_return_value(regs, (unsigned long)-ENOMEM);
	}
	return 0;
}

static struct kretprobe probe = {
	.kp.symbol_name	= "rxe_qp_chk_init",
	.entry_handler	= note_attributes,
	.handler	= refuse,
	.data_size	= sizeof(struct ib_qp_init_attr *),
};

static int add_device(struct ib_device *device)
{
	device->attrs.device_cap_flags &= ~IB_DEVICE_MEM_MGT_EXTENSIONS;
	return 0;
}

static void remove_device(struct ib_device *device, void *data)
{
	device->attrs.device_cap_flags |= IB_DEVICE_MEM_MGT_EXTENSIONS;
}

static struct ib_client client = {
	.name	= KBUILD_MODNAME,
	.add	= add_device,
	.remove	= remove_device,
};

static int __init narrow_device_init(void)
{
	int err = register_kretprobe(&probe);

	if (err || !no_registration)
		return err;
	err = ib_register_client(&client);
	if (err)
		unregister_kretprobe(&probe);
	return err;
}
module_init(narrow_device_init);

static void __exit narrow_device_exit(void)
{
	if (no_registration)
		ib_unregister_client(&client);
	unregister_kretprobe(&probe);
}
module_exit(narrow_device_exit);

MODULE_DESCRIPTION("Makes soft-RoCE refuse queue pairs as other adapters do");
MODULE_LICENSE("GPL");
