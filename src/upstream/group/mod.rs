//! The endpoints of one upstream as all workers know them: who is well, ejected or drained, and what follows from it.
//!
//! Everything here is rare: a health check's answer, an ejection, an operator's word, a tick. So it is done under a lock, with `now` as an argument. What
//! picks look at is [`Standing`] and [`Group::mode`], which are atomics.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::bulkhead::Traffic;
use super::event::{Event, Gone};
use super::health::{Change, Streak};
use super::outlier::{self, Record};
use super::standing::{Mode, Out, Standing};
use crate::clock::{Nanos, saturating_nanos};
use crate::snapshot::{Endpoint, HealthCheck, Outlier, Source, Upstream};

/// An upstream's endpoints.
#[derive(Debug, Default)]
pub(super) struct Group {
    panics: AtomicBool,
    pub(super) traffic: Traffic,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    rules: Rules,
    members: Vec<Member>,
    /// Whether this is an upstream that has endpoints, be there none at the moment.
    has_endpoints: bool,
    window_began: Nanos,
}

/// What an upstream's configuration says about using endpoints.
#[derive(Debug, Clone, PartialEq, Default)]
struct Rules {
    slow_start: Duration,
    panic_below: f64,
    health: Option<HealthCheck>,
    outlier: Option<Outlier>,
}

/// An endpoint.
#[derive(Debug)]
struct Member {
    standing: Arc<Standing>,
    weight: u32,
    /// How many ranks are preferred to its own.
    rank: u16,
    source: Option<Source>,
    streak: Streak,
    record: Record,
    /// Until when it is ejected; looked at only while it is.
    ejected_until: Nanos,
    /// When its slow start began, if it is in one.
    rising_since: Option<Nanos>,
}

/// What a member looks like from outside.
#[derive(Debug, Clone, PartialEq)]
pub struct EndpointState {
    /// `host:port`.
    pub address: Arc<str>,
    /// As configured.
    pub weight: u32,
    /// How much of it there is, from 0 to 1: less during a slow start.
    pub share: f64,
    /// Exchanges under way.
    pub load: u32,
    /// What its health checks say; `true` without any.
    pub healthy: bool,
    /// Until when it is ejected, if it is.
    pub ejected_until: Option<SystemTime>,
    /// Whether an operator took it out.
    pub drained: bool,
    /// Whether it only stands by for others.
    pub stands_by: bool,
    /// Why it is one.
    pub source: Option<Source>,
    /// Whether it gets requests, all in all.
    pub used: bool,
}

impl Group {
    /// What may be used. One relaxed load.
    pub(super) fn mode(&self) -> Mode {
        if self.panics() { Mode::Panic } else { Mode::Usual }
    }

    pub(super) fn panics(&self) -> bool {
        self.panics.load(Ordering::Relaxed)
    }

    /// Follows a configuration. Endpoints that stay keep their standing; what nobody watches any more is forgiven.
    pub(super) fn follow(&self, upstream: &Upstream, endpoints: &[Endpoint], now: Nanos) -> Option<Event> {
        let mut inner = self.lock();
        inner.has_endpoints = true;
        let rules = Rules {
            slow_start: upstream.slow_start,
            panic_below: upstream.panic_below,
            health: upstream.health.clone(),
            outlier: upstream.outlier.clone(),
        };
        let mut before = std::mem::take(&mut inner.members);
        let is_first = before.is_empty();
        for endpoint in endpoints {
            let known = before.iter().position(|member| member.standing.authority == endpoint.authority);
            let mut member = known.map_or_else(|| Member::new(&endpoint.authority), |place| before.swap_remove(place));
            (member.weight, member.rank, member.source) = (endpoint.weight, endpoint.rank, Some(endpoint.source.clone()));
            let was_used = known.is_some() && member.is_used();
            if rules.health.is_none() {
                member.standing.set(Out::Unhealthy, false);
                member.streak = Streak::default();
            }
            if rules.outlier.is_none() {
                member.standing.set(Out::Ejected, false);
                member.standing.forget_failures();
            }
            if !was_used && !is_first && member.is_used() {
                member.rise(&rules, now);
            }
            inner.members.push(member);
        }
        inner.rules = rules;
        inner.let_rise(now);
        self.look_for_panic(&inner)
    }

    /// Whether it is of an upstream that has endpoints.
    pub(super) fn has_endpoints(&self) -> bool {
        self.lock().has_endpoints
    }

    /// What its endpoints are called.
    pub(super) fn addresses(&self) -> Vec<Arc<str>> {
        self.lock().members.iter().map(|member| Arc::clone(&member.standing.authority)).collect()
    }

    /// The standing of an endpoint; none if the configuration in force doesn't have it.
    pub(super) fn standing(&self, authority: &str) -> Option<Arc<Standing>> {
        self.lock().member(authority).map(|member| Arc::clone(&member.standing))
    }

    /// Takes note of a health check's answer. One that was asked for by a configuration that is no longer in force says nothing: nobody would
    /// ever take it back.
    pub(super) fn checked(
        &self,
        authority: &str,
        check: &HealthCheck,
        well: bool,
        now: Nanos,
    ) -> (Option<Change>, Option<Event>) {
        let mut inner = self.lock();
        let rules = inner.rules.clone();
        let Some(member) = inner.member(authority).filter(|_| rules.health.as_ref() == Some(check)) else { return (None, None) };
        let change = member.streak.note(well, !member.standing.is(Out::Unhealthy), check);
        match change {
            None => return (None, None),
            Some(Change::Unhealthy { .. }) => member.put_out(Out::Unhealthy),
            Some(Change::Healthy { .. }) => {
                member.standing.forget_failures();
                member.put_back(Out::Unhealthy, &rules, now);
            }
        }
        (change, self.look_for_panic(&inner))
    }

    /// Takes an endpoint out for its answers, unless as many are as may be; then it begins to count again.
    pub(super) fn eject(&self, standing: &Standing, why: Gone, now: Nanos) -> Vec<Event> {
        let mut inner = self.lock();
        let place = inner.members.iter().position(|member| std::ptr::eq(&*member.standing, standing));
        let ejected = place.and_then(|place| inner.eject(place, why, now));
        standing.forget_row();
        ejected.into_iter().chain(self.look_for_panic(&inner)).collect()
    }

    /// Lets an operator take an endpoint out or put it back; whether there is one.
    pub(super) fn set_drained(&self, authority: &str, drained: bool, now: Nanos) -> Option<Vec<Event>> {
        let mut inner = self.lock();
        let rules = inner.rules.clone();
        let member = inner.member(authority)?;
        let address = Arc::clone(&member.standing.authority);
        if member.standing.is(Out::Drained) == drained {
            return Some(Vec::new());
        }
        let event = if drained {
            member.put_out(Out::Drained);
            Event::Drained { address }
        } else {
            member.put_back(Out::Drained, &rules, now);
            Event::Enabled { address }
        };
        Some(std::iter::once(event).chain(self.look_for_panic(&inner)).collect())
    }

    /// What time brings: ejections end, windows close, weights grow.
    pub(super) fn tick(&self, now: Nanos) -> Vec<Event> {
        let mut inner = self.lock();
        let mut events = inner.end_ejections(now);
        events.extend(inner.close_window(now));
        inner.let_rise(now);
        events.extend(self.look_for_panic(&inner));
        events
    }

    /// Every endpoint, as it is; `wall` is what time `now` is for people.
    pub(super) fn states(&self, now: Nanos, wall: SystemTime) -> Vec<EndpointState> {
        let mode = self.mode();
        self.lock().members.iter().map(|member| member.state(mode, now, wall)).collect()
    }

    fn look_for_panic(&self, inner: &Inner) -> Option<Event> {
        inner.let_stand_by();
        let candidates =
            || inner.members.iter().filter(|member| !member.standing.is(Out::Drained) && !member.standing.is(Out::StandsBy));
        let (in_order, of) = (candidates().filter(|member| member.is_used()).count(), candidates().count());
        let panics = outlier::is_panic(in_order, of, inner.rules.panic_below);
        let before = self.panics.swap(panics, Ordering::Relaxed);
        (before != panics).then_some(if panics { Event::Panic { in_order, of } } else { Event::Calm { in_order, of } })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn member(&mut self, authority: &str) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| &*member.standing.authority == authority)
    }

    fn eject(&mut self, place: usize, why: Gone, now: Nanos) -> Option<Event> {
        let rules = self.rules.outlier.as_ref()?;
        let out = self.members.iter().filter(|member| member.standing.is(Out::Ejected)).count();
        let most = outlier::most_ejected(self.members.len(), rules.max_ejected);
        let member = self.members.get_mut(place)?;
        if out >= most || member.standing.is(Out::Ejected) {
            return None;
        }
        let length = member.record.eject(rules, now);
        member.ejected_until = now.saturating_add(saturating_nanos(length));
        member.put_out(Out::Ejected);
        Some(Event::Ejected { address: Arc::clone(&member.standing.authority), why, length })
    }

    fn end_ejections(&mut self, now: Nanos) -> Vec<Event> {
        let Self { rules, members, .. } = self;
        let due = members.iter_mut().filter(|member| member.standing.is(Out::Ejected) && member.ejected_until <= now);
        due.map(|member| {
            member.record.back_since = now;
            member.standing.forget_failures();
            member.put_back(Out::Ejected, rules, now);
            Event::Returned { address: Arc::clone(&member.standing.authority) }
        })
        .collect()
    }

    fn close_window(&mut self, now: Nanos) -> Vec<Event> {
        let Some(rule) = self.rules.outlier.as_ref().and_then(|outlier| outlier.success_rate) else { return Vec::new() };
        if now.saturating_sub(self.window_began) < saturating_nanos(rule.window) {
            return Vec::new();
        }
        self.window_began = now;
        let tallies: Vec<_> = self.members.iter().map(|member| member.standing.take_tally()).collect();
        let below = outlier::below_rate(&tallies, &rule);
        below.into_iter().filter_map(|place| self.eject(place, Gone::SuccessRate, now)).collect()
    }

    /// Of several ranks the first that has an endpoint in order is used; if none has, all are.
    fn let_stand_by(&self) {
        let in_order = self.members.iter().filter(|member| member.standing.is_in_order()).map(|member| member.rank);
        let last = in_order.min().unwrap_or(u16::MAX);
        for member in &self.members {
            let stands_by = member.rank > last;
            // Picks read this, so it is written only when it changes.
            if member.standing.is(Out::StandsBy) != stands_by {
                member.standing.set(Out::StandsBy, stands_by);
            }
        }
    }

    fn let_rise(&mut self, now: Nanos) {
        for member in &mut self.members {
            let Some(since) = member.rising_since else { continue };
            let since = Duration::from_nanos(now.saturating_sub(since));
            member.standing.set_share(outlier::slow_start_share(since, self.rules.slow_start));
            if since >= self.rules.slow_start {
                member.rising_since = None;
            }
        }
    }
}

impl Member {
    fn new(authority: &Arc<str>) -> Self {
        Self {
            standing: Arc::new(Standing::new(Arc::clone(authority))),
            weight: 1,
            rank: 0,
            source: None,
            streak: Streak::default(),
            record: Record::default(),
            ejected_until: 0,
            rising_since: None,
        }
    }

    fn is_used(&self) -> bool {
        self.standing.may_be_used(Mode::Usual)
    }

    fn put_out(&self, out: Out) {
        self.standing.set(out, true);
    }

    /// Takes one reason away. When it was the last, the endpoint returns, slowly if that is wanted.
    fn put_back(&mut self, out: Out, rules: &Rules, now: Nanos) {
        if self.standing.is_out_only_for(out) {
            // Before it may be used, so that no pick sees it with its full weight.
            self.rise(rules, now);
        }
        self.standing.set(out, false);
    }

    fn rise(&mut self, rules: &Rules, now: Nanos) {
        if !rules.slow_start.is_zero() {
            self.rising_since = Some(now);
            self.standing.set_share(outlier::slow_start_share(Duration::ZERO, rules.slow_start));
        }
    }

    fn state(&self, mode: Mode, now: Nanos, wall: SystemTime) -> EndpointState {
        let standing = &self.standing;
        let left = || Duration::from_nanos(self.ejected_until.saturating_sub(now));
        EndpointState {
            address: Arc::clone(&standing.authority),
            weight: self.weight,
            share: share_of_one(standing.share()),
            load: standing.load(),
            healthy: !standing.is(Out::Unhealthy),
            ejected_until: standing.is(Out::Ejected).then(|| wall + left()),
            drained: standing.is(Out::Drained),
            stands_by: standing.is(Out::StandsBy),
            source: self.source.clone(),
            used: standing.may_be_used(mode),
        }
    }
}

fn share_of_one(share: u64) -> f64 {
    f64::from(u32::try_from(share).unwrap_or(u32::MAX)) / 65536.0
}

#[cfg(test)]
mod tests;
