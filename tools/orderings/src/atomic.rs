// SPDX-License-Identifier: GPL-2.0

//! Atomic variables of loom's, with the interface of `bindings/sync/atomic.rs`.

use core::cell::{
    Cell,
    OnceCell, //
};
use loom::sync::atomic::{
    self,
    fence,
    Ordering, //
};

/// The orderings of the kernel crate.
pub mod ordering {
    /// What an ordering is.
    pub enum OrderingType {
        Relaxed,
        Acquire,
        Release,
        Full,
    }

    /// An ordering.
    pub trait Ordering {
        const TYPE: OrderingType;
    }

    /// The orderings of a load.
    pub trait AcquireOrRelaxed: Ordering {}

    /// The orderings of a store.
    pub trait ReleaseOrRelaxed: Ordering {}

    macro_rules! orderings {
        ($($name:ident)*) => {
            $(
                pub struct $name;

                impl Ordering for $name {
                    const TYPE: OrderingType = OrderingType::$name;
                }
            )*
        };
    }

    orderings!(Relaxed Acquire Release Full);

    impl AcquireOrRelaxed for Acquire {}
    impl AcquireOrRelaxed for Relaxed {}
    impl ReleaseOrRelaxed for Release {}
    impl ReleaseOrRelaxed for Relaxed {}
}

/// How much of the asked orderings is done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Strength {
    /// All.
    AsAsked,
    /// No full barriers: acquire and release only.
    WithoutBarriers,
    /// None.
    Relaxed,
}

std::thread_local! {
    // loom runs all threads of a model on one thread of the host.
    static STRENGTH: Cell<Strength> = const { Cell::new(Strength::AsAsked) };
}

/// Runs a model with this much of the asked orderings.
pub fn model(strength: Strength, run: fn()) {
    STRENGTH.set(strength);
    let mut builder = loom::model::Builder::new();
    // Bounds the time: more changes between threads than this are not tried.
    builder.preemption_bound = Some(3);
    builder.check(run);
}

fn order<O: ordering::Ordering>() -> Ordering {
    use ordering::OrderingType;

    match O::TYPE {
        _ if STRENGTH.get() == Strength::Relaxed => Ordering::Relaxed,
        OrderingType::Relaxed => Ordering::Relaxed,
        OrderingType::Acquire => Ordering::Acquire,
        OrderingType::Release => Ordering::Release,
        OrderingType::Full => Ordering::AcqRel,
    }
}

/// As on processors whose atomic instructions are no barriers.
fn ordered<O: ordering::Ordering, R>(operation: impl FnOnce(Ordering) -> R) -> R {
    let barrier = || {
        let is_full = matches!(O::TYPE, ordering::OrderingType::Full);
        if is_full && STRENGTH.get() == Strength::AsAsked {
            fence(Ordering::SeqCst);
        }
    };
    barrier();
    let result = operation(order::<O>());
    barrier();
    result
}

/// A type that there is an atomic variable of.
pub trait Value: Copy {
    type Cell;

    fn cell(self) -> Self::Cell;
}

/// A variable. loom's cannot be made by constant functions, so that it is made at its first use: a
/// model has to look at it once before there is a second thread.
pub struct Atomic<T: Value> {
    initial: T,
    cell: OnceCell<T::Cell>,
}

// SAFETY: Of loom's threads one runs at a time, and it gives way to another only in an operation of
// an atomic variable. Making a variable, which is all that is done in `OnceCell`, is none.
unsafe impl<T: Value> Send for Atomic<T> {}

// SAFETY: As above.
unsafe impl<T: Value> Sync for Atomic<T> {}

impl<T: Value> Atomic<T> {
    pub const fn new(initial: T) -> Self {
        Self {
            initial,
            cell: OnceCell::new(),
        }
    }

    fn cell(&self) -> &T::Cell {
        self.cell.get_or_init(|| self.initial.cell())
    }
}

macro_rules! atomic {
    ($({$generic:ident})? $type:ty, $cell:ty $(, $number:ident)?) => {
        impl $(<$generic>)? Value for $type {
            type Cell = $cell;

            fn cell(self) -> $cell {
                <$cell>::new(self)
            }
        }

        impl $(<$generic>)? Atomic<$type> {
            pub fn load<O: ordering::AcquireOrRelaxed>(&self, _: O) -> $type {
                self.cell().load(order::<O>())
            }

            pub fn store<O: ordering::ReleaseOrRelaxed>(&self, value: $type, _: O) {
                self.cell().store(value, order::<O>());
            }

            pub fn xchg<O: ordering::Ordering>(&self, value: $type, _: O) -> $type {
                ordered::<O, _>(|order| self.cell().swap(value, order))
            }

            pub fn cmpxchg<O: ordering::Ordering>(
                &self,
                old: $type,
                new: $type,
                _: O,
            ) -> Result<$type, $type> {
                // Without the barriers of `Full`: the kernel's has none if it fails.
                self.cell()
                    .compare_exchange(old, new, order::<O>(), Ordering::Relaxed)
            }

            $(
                pub fn fetch_add<O: ordering::Ordering>(&self, value: $number, _: O) -> $type {
                    ordered::<O, _>(|order| self.cell().fetch_add(value, order))
                }

                pub fn fetch_sub<O: ordering::Ordering>(&self, value: $number, _: O) -> $type {
                    ordered::<O, _>(|order| self.cell().fetch_sub(value, order))
                }
            )?
        }
    };
}

atomic!(u32, atomic::AtomicU32, u32);
atomic!(i32, atomic::AtomicI32, i32);
atomic!(u64, atomic::AtomicU64, u64);
atomic!(bool, atomic::AtomicBool);
atomic!({T} *mut T, atomic::AtomicPtr<T>);
