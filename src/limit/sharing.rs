//! How a limit's counters are shared with other gateways. Knows no store: only what is wanted of one.

/// What is wanted of a shared store for one charge. A charge without this is counted by this process alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharing {
    /// A digest of what the limit counts by, the same for all limits that count by the same: what has the same is kept together.
    pub entity: u64,
    /// Who decides.
    pub consistency: Consistency,
    /// What happens while the store doesn't answer.
    pub on_failure: OnFailure,
}

/// Who decides about a charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// The store, every time.
    Strict,
    /// This process, out of blocks of cells that it takes from the store.
    Lease,
}

/// What happens to a charge while the store doesn't answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// This process enforces its share.
    Local,
    /// It conforms.
    Open,
    /// It is refused.
    Closed,
}
