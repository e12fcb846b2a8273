//! Several upstreams that share a route's clients by weight, and copies of its requests for another one.
//!
//! A client's side is its weighted rendezvous (Thaler and Ravishankar, 1998; Schindelhauer and Schomaker, 2005): of all sides the one with the highest
//! `weight / -ln(hash of client and side)`. So shares are those of the weights, nothing is remembered, every process says the same, and when a
//! weight changes only the clients move that it wins or loses.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use super::UpstreamId;
use crate::headers::HeaderEdits;

/// Upstreams by weight.
#[derive(Debug)]
pub struct Split {
    sides: Vec<Side>,
}

/// One of them.
#[derive(Debug)]
pub struct Side {
    /// Where it is.
    pub upstream: UpstreamId,
    /// Its share of the weights' sum; with 0 it has no clients.
    pub weight: u32,
    name: Box<str>,
}

impl Side {
    /// The upstream of this name. The name, not the route, decides which clients are here: those of a canary are the same ones on all
    /// routes that lead to it with this weight.
    #[must_use]
    pub fn new(upstream: UpstreamId, name: &str, weight: u32) -> Self {
        Self { upstream, weight, name: name.into() }
    }

    /// How much this client belongs here.
    fn score(&self, client: u64) -> f64 {
        let mut hash = SipHasher13::new();
        hash.write(&client.to_le_bytes());
        hash.write(self.name.as_bytes());
        // In (0, 1): 53 bits are what a float holds, and a half keeps it from both ends.
        #[expect(clippy::cast_precision_loss, reason = "53 bits")]
        let unit = ((hash.finish() >> 11) as f64 + 0.5) * 2_f64.powi(-53);
        f64::from(self.weight) / -unit.ln()
    }
}

impl Split {
    /// Of these sides.
    #[must_use]
    pub fn new(sides: Vec<Side>) -> Self {
        Self { sides }
    }

    /// All sides, by name.
    #[must_use]
    pub fn sides(&self) -> &[Side] {
        &self.sides
    }

    /// The place of a client's side, by the client's hash; none if no side has a weight.
    #[must_use]
    pub fn place(&self, client: u64) -> Option<usize> {
        let weighty = self.sides.iter().enumerate().filter(|(_, side)| side.weight > 0);
        let scored = weighty.map(|(place, side)| (place, side.score(client)));
        scored.max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(place, _)| place)
    }
}

/// Copies of a route's requests.
#[derive(Debug)]
pub struct Mirror {
    /// Where they go.
    pub upstream: UpstreamId,
    /// Of 2^32 requests, how many have one.
    pub sample: u64,
    /// Requests with a larger body have none.
    pub max_body: usize,
    /// So many at once.
    pub max_in_flight: u64,
    /// The route's edits, and what tells a copy from a request.
    pub edits: HeaderEdits,
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENTS: u64 = 20_000;

    fn split(weights: &[(&str, u32)]) -> Split {
        Split::new((0..).zip(weights).map(|(id, (name, weight))| Side::new(UpstreamId(id), name, *weight)).collect())
    }

    fn places(split: &Split) -> Vec<usize> {
        (0..CLIENTS).map(|client| split.place(client).unwrap()).collect()
    }

    fn share(places: &[usize], place: usize) -> f64 {
        let count = u32::try_from(places.iter().filter(|found| **found == place).count()).unwrap();
        f64::from(count) / 20_000.0
    }

    #[test]
    fn shares_are_those_of_the_weights() {
        let places = places(&split(&[("a", 90), ("b", 9), ("c", 1), ("d", 0)]));
        for (place, expected) in [0.9, 0.09, 0.01, 0.0].into_iter().enumerate() {
            // Six standard deviations of a share of 20 000.
            let bound = 6.0 * (expected * (1.0 - expected) / 20_000.0_f64).sqrt();
            assert!((share(&places, place) - expected).abs() <= bound, "{} for {expected}", share(&places, place));
        }
    }

    #[test]
    fn a_weight_that_grows_only_takes_and_only_what_it_needs() {
        let mut before = places(&split(&[("a", 100), ("b", 0)]));
        for percent in [1, 5, 20, 50, 99, 100] {
            let after = places(&split(&[("a", 100 - percent), ("b", percent)]));
            assert!(before.iter().zip(&after).all(|(before, after)| before == after || *after == 1), "{percent} %");
            before = after;
        }
        // What a third side gets comes from both, and nothing goes from one to the other.
        let (two, three) = (places(&split(&[("a", 50), ("b", 50)])), places(&split(&[("a", 40), ("b", 40), ("c", 20)])));
        assert!(two.iter().zip(&three).all(|(before, after)| before == after || *after == 2));
    }

    #[test]
    fn the_order_and_the_scale_of_weights_mean_nothing() {
        let named = |places: Vec<usize>, names: [&'static str; 2]| places.into_iter().map(|p| names[p]).collect::<Vec<_>>();
        let (one, other) = (split(&[("a", 9), ("b", 1)]), split(&[("b", 10), ("a", 90)]));
        assert_eq!(named(places(&one), ["a", "b"]), named(places(&other), ["b", "a"]));
    }

    #[test]
    fn every_version_says_the_same() {
        let split = split(&[("stable", 90), ("canary", 10)]);
        let canaries: Vec<_> = (0..60).filter(|client| split.place(*client) == Some(1)).collect();
        assert_eq!(canaries, [11, 19, 24, 29, 56], "who is where must not change from one version to the next");
        assert_eq!(split_of_nothing().place(1), None);
    }

    fn split_of_nothing() -> Split {
        split(&[("a", 0)])
    }
}
