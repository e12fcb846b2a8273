//! What a proxy must and may change about headers.
//!
//! [`EndToEndHead`] and [`EndToEndFields`] are the proof that a request's head was cleaned: only `request` makes them, and upstreams
//! are sent nothing else. Names are tables with a test per row; this module knows no routes and no limits, only names and numbers.

mod forwarding;
mod hop_by_hop;
mod identity;
mod rate_limit;
mod request;
mod response;
mod sink;
mod upgrade;

use http::{HeaderMap, HeaderName, HeaderValue};

pub use identity::Withheld;
pub use rate_limit::{Family, Numbers, add_rate_limit, rate_limit_policy, retry_after_seconds};
pub use request::{
    AllowedTrailers, EndToEndFields, EndToEndHead, Forwarding, Framing, IdentityHeaders, Unsayable, is_foldable, looped,
};
pub use response::{ResponseFault, ResponseFraming, ResponseHead};
pub use upgrade::Offer;

/// An operator's changes: remove, then set, then add.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeaderEdits {
    /// Names to remove.
    pub remove: Vec<HeaderName>,
    /// Replaces or adds.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// Adds a line.
    pub add: Vec<(HeaderName, HeaderValue)>,
}

impl HeaderEdits {
    /// Carries them out.
    pub fn apply(&self, headers: &mut HeaderMap) {
        for name in &self.remove {
            headers.remove(name);
        }
        for (name, value) in &self.set {
            headers.insert(name, value.clone());
        }
        for (name, value) in &self.add {
            headers.append(name, value.clone());
        }
    }

    /// Whether a received line of this name is dropped.
    fn drops(&self, name: &HeaderName) -> bool {
        self.remove.contains(name) || self.set.iter().any(|(set, _)| set == name)
    }
}
