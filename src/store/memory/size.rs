//! The sizes that a shard's table goes through: from a few sets, by doubling, to its budget.

use super::table::WAYS;

/// How large a table is: it begins with a few sets and may double so many times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    /// Sets it begins with.
    pub(super) first: usize,
    doublings: u32,
}

impl Default for Size {
    fn default() -> Self {
        Self { first: 1, doublings: 0 }
    }
}

impl Size {
    /// At least this many sets when it has grown, and at most a sixteenth more.
    pub(super) fn of(sets: usize) -> Self {
        let doublings = (sets / FIRST_SETS).checked_ilog2().unwrap_or(0);
        Self { first: sets.div_ceil(1 << doublings).max(1), doublings }
    }

    pub(super) fn most(self) -> usize {
        self.first << self.doublings
    }

    /// The sizes a table grows through.
    pub(super) fn steps(self) -> impl Iterator<Item = usize> {
        (0..=self.doublings).map(move |doublings| self.first << doublings)
    }

    /// For how many sets a table of `sets` sets takes addresses: the smallest one for no more than it has; every other for as many as there can
    /// be. It then grows where it lies and leaves nothing behind to the allocator, and memory is what has been written to.
    pub(super) fn reserve(self, sets: usize) -> usize {
        if sets > self.first { self.most().max(sets) } else { sets }
    }

    /// A smaller size for a table of `sets` sets: one that `keys` fill at most a quarter of, or the largest if the table is beyond that.
    pub(super) fn smaller(self, sets: usize, keys: usize) -> Option<usize> {
        let sparse = self.steps().find(|step| keys * SPARSE <= step * WAYS);
        sparse.or(Some(self.most())).filter(|step| *step < sets && keys <= step * WAYS)
    }
}

/// A table becomes smaller when the next smaller one would have less than one in this many places used.
const SPARSE: usize = 4;
/// A table that may grow begins with at least this many sets.
const FIRST_SETS: usize = 16;
