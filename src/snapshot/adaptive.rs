//! By which rules an upstream's limit of exchanges in flight is found and shared out.

/// `adaptive_concurrency`, compiled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adaptive {
    /// The lowest limit, at least 1.
    pub min: u32,
    /// The highest, not below `min`.
    pub max: u32,
    /// The first.
    pub initial: u32,
    /// How many times its baseline an answer may take; more than 1.
    pub tolerance: f64,
    /// How much of the limit only the highest tier may use, from 0 to 1.
    pub reserve: f64,
    /// How many tiers there are.
    pub tiers: usize,
    /// Whether what is too much is shed, or only counted.
    pub enforced: bool,
}
