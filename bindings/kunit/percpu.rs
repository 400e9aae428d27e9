// SPDX-License-Identifier: GPL-2.0

use kernel::prelude::*;

#[kunit_tests(rnbd_percpu)]
mod tests {
    use super::*;
    use crate::{
        cpu,
        percpu::{
            Counter,
            PerCpu, //
        },
        random, //
    };
    use kernel::sync::Arc;

    #[test]
    fn each_cpu_has_its_own() -> Result {
        let cpus = cpu::possible_cpus().count();
        let mut made = 0;
        let counters = PerCpu::new(|| {
            made += 1;
            Counter::new()
        })?;
        assert_eq!(made, cpus);
        for (cpu, counter) in counters.iter() {
            counter.add(u64::from(cpu) + 1);
        }
        let cpus = cpus as u64;
        // The CPUs of a test machine are numbered without gaps.
        assert_eq!(counters.sum(Counter::get), cpus * (cpus + 1) / 2);
        counters.current().add(1);
        assert_eq!(counters.sum(Counter::get), cpus * (cpus + 1) / 2 + 1);
        for (_, counter) in counters.iter() {
            counter.reset();
        }
        assert_eq!(counters.sum(Counter::get), 0);
        Ok(())
    }

    #[test]
    fn values_are_dropped() -> Result {
        let shared = Arc::new((), GFP_KERNEL)?;
        let values = PerCpu::new(|| shared.clone())?;
        drop(values);
        assert!(Arc::into_unique_or_drop(shared).is_some());
        Ok(())
    }

    #[test]
    fn cpu_numbers_are_in_range() {
        assert!(cpu::possible_cpus().all(|cpu| cpu < cpu::nr_cpu_ids()));
        assert!(cpu::possible_cpus().is_sorted());
        assert!(cpu::current_cpu() < cpu::nr_cpu_ids());
        let online = cpu::online_cpus() as usize;
        assert!(online >= 1 && online <= cpu::possible_cpus().count());
    }

    #[test]
    fn random_numbers_are_in_range() {
        for _ in 0..100 {
            assert_eq!(random::u32_below(0), 0);
            assert_eq!(random::u32_below(1), 0);
            assert!(random::u32_below(10) < 10);
            let uuid = random::uuid();
            assert_eq!(uuid[6] & 0xf0, 0x40);
            assert_eq!(uuid[8] & 0xc0, 0x80);
        }
        assert!(random::uuid() != random::uuid());
    }
}
