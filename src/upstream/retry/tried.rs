//! Which endpoints a request has been to.

use std::num::NonZeroU64;

use smallvec::SmallVec;

use crate::upstream::pool::Cluster;

/// Endpoints that have been tried, by place: first those of earlier tries, which are taken again when there are no others, then those that could
/// not be connected to in this one, which are not.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Tried {
    places: SmallVec<[usize; 4]>,
    earlier: usize,
}

impl Tried {
    /// The next one to go to.
    pub(in crate::upstream) fn pick(&mut self, cluster: &Cluster, key: Option<NonZeroU64>) -> Option<usize> {
        let picked = cluster.pick(&self.places, key);
        if picked.is_some() || self.earlier == 0 {
            return picked;
        }
        self.places.drain(..std::mem::take(&mut self.earlier));
        cluster.pick(&self.places, key)
    }

    /// Whether there is one that could not be connected to in this try.
    pub(in crate::upstream) fn has_unreachable(&self) -> bool {
        self.places.len() > self.earlier
    }

    /// This one can't be connected to.
    pub(in crate::upstream) fn unreachable(&mut self, place: usize) {
        self.places.push(place);
    }

    /// The try begins anew: it has found no room, and who can be connected to may have changed.
    pub(super) fn begin_anew(&mut self) {
        self.places.truncate(self.earlier);
    }

    /// The try is over; it had come to this endpoint, if to any.
    pub(super) fn next_try(&mut self, place: Option<usize>) {
        self.places.extend(place);
        self.earlier = self.places.len();
    }
}
