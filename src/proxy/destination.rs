//! Which upstream a request goes to.

use crate::identity::Identity;
use crate::policy::{Action, UpstreamId};

/// An upstream, and its place among those that share the route, if several do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Destination {
    pub(super) upstream: UpstreamId,
    pub(super) side: Option<usize>,
}

impl Destination {
    /// None if the gateway answers itself.
    pub(super) fn of(action: &Action, identity: &Identity<'_>) -> Option<Self> {
        match action {
            Action::Respond { .. } => None,
            Action::Forward(upstream) => Some(Self { upstream: *upstream, side: None }),
            Action::Split(split) => {
                let place = split.place(identity.client_hash())?;
                split.sides().get(place).map(|side| Self { upstream: side.upstream, side: Some(place) })
            }
        }
    }
}
