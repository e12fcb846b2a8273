//! Who serves a new connection: the worker that accepted it, unless another has fewer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Open connections of every worker.
#[derive(Debug, Clone)]
pub(super) struct Loads(Arc<[Load]>);

/// On a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Load(AtomicU32);

/// One connection on a worker's account, until dropped.
#[derive(Debug)]
pub(super) struct Place {
    loads: Loads,
    worker: usize,
}

impl Loads {
    pub(super) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| Load::default()).collect())
    }

    /// A place for a connection that `here` accepted. Counted at once, so that the next one already sees it.
    pub(super) fn place(&self, here: usize) -> Place {
        let load = |worker: usize| self.0.get(worker).map_or(u32::MAX, |Load(load)| load.load(Ordering::Relaxed));
        let least = (0..self.0.len()).min_by_key(|worker| load(*worker)).unwrap_or(here);
        let worker = if load(least) < load(here) { least } else { here };
        self.at(worker)
    }

    /// A place on this worker, whatever the others have.
    pub(super) fn at(&self, worker: usize) -> Place {
        if let Some(Load(load)) = self.0.get(worker) {
            load.fetch_add(1, Ordering::Relaxed);
        }
        Place { loads: self.clone(), worker }
    }
}

impl Place {
    pub(super) fn worker(&self) -> usize {
        self.worker
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(Load(load)) = self.loads.0.get(self.worker) {
            load.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_do_not_pile_up_wherever_they_are_accepted() {
        let loads = Loads::new(2);
        let places: Vec<_> = (0..8).map(|_| loads.place(0)).collect();
        let on_first = places.iter().filter(|place| place.worker() == 0).count();
        assert_eq!(on_first, 4);
        drop(places);
        assert_eq!(loads.place(1).worker(), 1);
    }
}
