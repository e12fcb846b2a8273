//! What the store says about one counter.

use crate::clock::Nanos;
use crate::limit::Outcome;

/// The answer to one question. Durations only: the store's clock is not ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// After the charge if all that was asked together conforms, without it otherwise; what is granted beside it is among what remains. `mark`
    /// is how it is found again to be given back.
    pub outcome: Outcome,
    /// Cells that were taken beside the charge, at most as many as were asked for; 0 unless everything conforms.
    pub granted: u64,
    /// How long cells taken now may be spent: until the window ends, [`Nanos::MAX`] where nothing ends.
    pub until_end: Nanos,
    /// The window they belong to, 0 where there are none: a lease goes back only into the window it came from.
    pub window: u64,
}
