//! What may be said of windows from outside. A request was decided at some time between being sent and being answered, so where that is across a
//! boundary it may belong to either window: it is held against a limit only if no way of attributing such requests keeps to it.

use super::paced::Seen;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Windows of one length, in µs since 1970.
#[derive(Debug, Clone, Copy)]
pub(super) struct Windows {
    /// Where one of them begins.
    pub(super) origin: u64,
    pub(super) length: u64,
}

impl Windows {
    /// The first and the last window that a request can have been decided in.
    fn of(&self, seen: &Seen) -> (u64, u64) {
        let window = |at: u64| (at - self.origin % self.length) / self.length;
        (window(seen.sent - BLUR), window(seen.received + BLUR))
    }

    /// How far into a window a request has been decided at the latest.
    fn latest(&self, seen: &Seen) -> u64 {
        ((seen.received + BLUR - self.origin % self.length) % self.length).max(1)
    }

    /// Windows in which at least so many were certainly offered, to its very end, but those that a load began and ended in.
    pub(super) fn overloaded(&self, all: &[Seen], least: u64) -> Vec<u64> {
        let mut offered = BTreeMap::<u64, [u64; PARTS]>::new();
        for seen in all {
            let (first, last) = self.of(seen);
            let part = self.latest(seen) * PARTS as u64 / self.length;
            offered.entry(first).or_default()[part as usize] += u64::from(first == last);
        }
        // What comes free while a busy machine offers nothing is nobody's: at the end of a sliding window it is lost.
        let is_overload = |parts: &[u64; PARTS]| {
            parts.iter().sum::<u64>() >= least && parts.iter().all(|part| part * 4 * PARTS as u64 >= least)
        };
        offered.pop_first();
        offered.pop_last();
        offered.into_iter().filter(|(_, parts)| is_overload(parts)).map(|(window, _)| window).collect()
    }

    /// How many can have been admitted in this window.
    pub(super) fn most_in(&self, admitted: &[Seen], window: u64) -> u64 {
        count(admitted, |seen| (self.of(seen).0..=self.of(seen).1).contains(&window))
    }

    /// How many can have been admitted in any of these windows.
    pub(super) fn most_in_all(&self, admitted: &[Seen], windows: &[u64]) -> u64 {
        count(admitted, |seen| windows.iter().any(|window| (self.of(seen).0..=self.of(seen).1).contains(window)))
    }

    /// The first window that more than `limit` were admitted in, however requests on boundaries are attributed: each window takes those
    /// first that cannot wait for the next.
    pub(super) fn exceeded(&self, admitted: &[Seen], limit: u64) -> Option<u64> {
        let mut spans: Vec<_> = admitted.iter().map(|seen| self.of(seen)).collect();
        spans.sort_unstable();
        let (mut spans, mut waiting) = (spans.into_iter().peekable(), BinaryHeap::new());
        let mut window = spans.peek()?.0;
        while spans.peek().is_some() || !waiting.is_empty() {
            while let Some((_, last)) = spans.next_if(|(first, _)| *first == window) {
                waiting.push(Reverse(last));
            }
            for _ in 0..limit {
                waiting.pop();
            }
            if waiting.peek().is_some_and(|Reverse(last)| *last <= window) {
                return Some(window);
            }
            window += 1;
        }
        None
    }

    /// The first request that was admitted although what was admitted in its window before it, and what the window before still weighs then, is
    /// the limit of a sliding window: how far into which window, and how much there was with it.
    pub(super) fn outweighed(&self, admitted: &[Seen], limit: u64) -> Option<(u64, u64, f64)> {
        let mut certain = BTreeMap::<u64, Vec<u64>>::new();
        for seen in admitted {
            let (first, last) = self.of(seen);
            if first == last {
                certain.entry(first).or_default().push(self.latest(seen));
            }
        }
        certain.values_mut().for_each(|times| times.sort_unstable());
        certain.iter().find_map(|(window, times)| {
            let before = certain.get(&(window - 1)).map_or(0, Vec::len) as f64;
            let used = |(i, at): (usize, &u64)| (*at, i as f64 + 1.0 + before * (self.length - at) as f64 / self.length as f64);
            let (at, used) = times.iter().enumerate().map(used).find(|(_, used)| *used > limit as f64 + 1e-6)?;
            Some((*window, at, used))
        })
    }
}

/// The most that were certainly admitted within any stretch of time as long as this, in µs.
pub(super) fn most_within(admitted: &[Seen], span: u64) -> u64 {
    let mut sent: Vec<_> = admitted.iter().map(|seen| seen.sent).collect();
    let mut received: Vec<_> = admitted.iter().map(|seen| seen.received).collect();
    sent.sort_unstable();
    received.sort_unstable();
    let mut ended = 0;
    let within = |(earlier, from): (usize, &u64)| {
        while received.get(ended).is_some_and(|at| *at <= from + span) {
            ended += 1;
        }
        // Of those that have ended by then at most so many began earlier.
        ended.saturating_sub(earlier)
    };
    u64::try_from(sent.iter().enumerate().map(within).max().unwrap_or(0)).unwrap()
}

fn count(all: &[Seen], which: impl Fn(&Seen) -> bool) -> u64 {
    u64::try_from(all.iter().filter(|seen| which(seen)).count()).unwrap()
}

/// Of a window: each must have at least a quarter of its part of an overload.
const PARTS: usize = 10;
/// By how much the boundaries may be wrong: they are read from expiries, which are whole milliseconds.
const BLUR: u64 = 4000;

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOWS: Windows = Windows { origin: 500_000, length: 1_000_000 };

    fn seen(sent: u64, received: u64) -> Seen {
        Seen { sent: sent * 1000, received: received * 1000, status: 200 }
    }

    #[test]
    fn one_too_many_in_a_window_is_seen_and_one_on_a_boundary_is_given_the_benefit() {
        let mut admitted = vec![seen(2600, 2610), seen(2700, 2710), seen(2490, 2510)];
        assert_eq!(WINDOWS.exceeded(&admitted, 2), None, "the third may be of the window before");
        admitted.extend([seen(1600, 1610), seen(1700, 1710)]);
        assert_eq!(WINDOWS.exceeded(&admitted, 2), Some(2), "which is full as well");
        assert_eq!(WINDOWS.exceeded(&admitted, 3), None);
        assert_eq!((WINDOWS.most_in(&admitted, 1), WINDOWS.most_in(&admitted, 2)), (3, 3));
        assert_eq!(WINDOWS.most_in_all(&admitted, &[1, 2]), 5);
    }

    #[test]
    fn an_overload_is_one_from_beginning_to_end() {
        let mut all: Vec<_> = (0..400).map(|i| seen(600 + i * 10, 601 + i * 10)).collect();
        assert_eq!((WINDOWS.overloaded(&all, 97), WINDOWS.overloaded(&all, 101)), (vec![1, 2, 3], vec![]));
        all.retain(|seen| !(2_300_000..2_400_000).contains(&seen.sent));
        assert_eq!(WINDOWS.overloaded(&all, 50), [2, 3]);
    }

    #[test]
    fn a_sliding_window_weighs_the_one_before() {
        let full: Vec<_> = (0..10).map(|i| seen(1600 + i, 1601 + i)).collect();
        let with = |at: u64| full.iter().copied().chain([seen(at - 1, at)]).collect::<Vec<_>>();
        assert_eq!(WINDOWS.outweighed(&with(2610), 10), None, "a tenth has come free");
        assert_eq!(WINDOWS.outweighed(&with(2580), 10).map(|(window, at, _)| (window, at)), Some((2, 84_000)));
        assert_eq!(WINDOWS.outweighed(&with(2580), 11), None);
    }

    #[test]
    fn a_stretch_has_what_was_sent_and_answered_in_it() {
        let admitted = [seen(1, 2), seen(3, 4), seen(5, 12), seen(11, 13), seen(30, 31)];
        assert_eq!(most_within(&admitted, 3000), 2);
        assert_eq!(most_within(&admitted, 12_000), 4);
        assert_eq!(most_within(&admitted, 0), 0);
    }
}
