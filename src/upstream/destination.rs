//! Where requests go: looked up in the generation that a request is planned on. It may have to wait, for the shared store or for its place in
//! a queue, and when it goes on the configuration may be another, with other upstreams in its places.

use std::rc::Rc;

use super::adaptive::Limited;
use super::pool::Cluster;
use crate::policy::UpstreamId;

/// All upstreams of one generation. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Destinations(pub(super) Rc<[Rc<Cluster>]>);

/// One of them.
#[derive(Debug, Clone)]
pub struct Destination(pub(super) Rc<Cluster>);

impl Destinations {
    /// One of the upstreams; each that the generation's policy names is there.
    #[must_use]
    pub fn get(&self, UpstreamId(place): UpstreamId) -> Option<Destination> {
        self.0.get(usize::from(place)).map(|cluster| Destination(Rc::clone(cluster)))
    }
}

impl Destination {
    /// What its load is limited by, if that is found out.
    #[must_use]
    pub fn limited(&self) -> Option<Rc<Limited>> {
        self.0.limited.clone()
    }
}
