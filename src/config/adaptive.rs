//! `adaptive_concurrency` of an upstream.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Mode;
use crate::units::Share;

/// Finds out how many requests an upstream does best with, and sheds what is more, unimportant tiers first.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdaptiveConcurrency {
    /// Never fewer in flight than this.
    pub min: u32,
    /// Never more.
    pub max: u32,
    /// Where to begin; 20 by default, or as near as `min` and `max` allow.
    pub initial: Option<u32>,
    /// How many times as long as without a queue an answer may take; more than 1.
    pub tolerance: f64,
    /// How much of the limit only the highest tier may use.
    pub reserve: Share,
    /// `shadow` counts what it would have shed.
    pub mode: Mode,
}

impl Default for AdaptiveConcurrency {
    fn default() -> Self {
        Self { min: 3, max: 1000, initial: None, tolerance: 1.5, reserve: Share(0.2), mode: Mode::default() }
    }
}
