//! How many connections the admin listener has, and who goes when another one comes.
//!
//! A health check must never wait for others: so the listener is never full. Whoever comes is let in, and if there are too many then, one
//! that has not asked for anything yet has to go, the oldest first, and if all have asked, the oldest of them.

use std::cell::RefCell;
use std::rc::Rc;

use tokio::sync::Notify;

/// The connections that are open.
#[derive(Debug, Default)]
pub(super) struct Places(Rc<RefCell<Vec<Rc<Taken>>>>);

/// A connection's place, until dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Rc<RefCell<Vec<Rc<Taken>>>>,
    taken: Rc<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    has_asked: std::cell::Cell<bool>,
    gone: Notify,
}

impl Places {
    /// A place for one more, whoever loses his by it.
    pub(super) fn take(&self) -> Place {
        let mut all = self.0.borrow_mut();
        if all.len() >= MOST {
            let idle = all.iter().position(|taken| !taken.has_asked.get()).unwrap_or(0);
            all.remove(idle).gone.notify_one();
        }
        let taken = Rc::new(Taken::default());
        all.push(Rc::clone(&taken));
        Place { places: Rc::clone(&self.0), taken }
    }
}

impl Place {
    /// Says that there is a request now.
    pub(super) fn asks(&self) {
        self.taken.has_asked.set(true);
    }

    /// Waits until somebody else needs the place.
    pub(super) async fn lost(&self) {
        self.taken.gone.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.borrow_mut().retain(|taken| !Rc::ptr_eq(taken, &self.taken));
    }
}

const MOST: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of these have lost their place.
    fn lost(places: &[Place]) -> Vec<usize> {
        let is_out = |place: &Place| !place.places.borrow().iter().any(|taken| Rc::ptr_eq(taken, &place.taken));
        places.iter().enumerate().filter(|(_, place)| is_out(place)).map(|(index, _)| index).collect()
    }

    #[test]
    fn who_has_asked_for_nothing_goes_first_and_the_oldest_of_those() {
        let all = Places::default();
        let mut taken: Vec<_> = (0..MOST).map(|_| all.take()).collect();
        taken[0].asks();
        taken[2].asks();
        taken.push(all.take());
        assert_eq!(lost(&taken), [1]);
        taken.push(all.take());
        assert_eq!(lost(&taken), [1, 3]);
        taken.iter().for_each(Place::asks);
        taken.push(all.take());
        assert_eq!(lost(&taken), [0, 1, 3]);
        taken.pop();
        taken.push(all.take());
        assert_eq!(lost(&taken), [0, 1, 3], "there was room");
    }
}
