//! The life of endpoints, with time as an argument.

use super::*;
use crate::clock::SECOND;
use crate::snapshot::{Balance, EndpointSet, Probe, SuccessRate, UpstreamKind, UpstreamProtocol};
use crate::upstream::balance::FULL;
use crate::upstream::standing::Counts;
use proptest::prelude::*;

fn check() -> HealthCheck {
    let (interval, timeout) = (Duration::from_secs(5), Duration::from_secs(1));
    HealthCheck { probe: Probe::Tcp, interval, timeout, healthy_after: 1, unhealthy_after: 1 }
}

fn outlier() -> Outlier {
    Outlier {
        consecutive_failures: 3,
        status: vec![(502, 504)],
        eject_for: Duration::from_secs(30),
        max_eject_for: Duration::from_secs(300),
        max_ejected: 0.5,
        success_rate: None,
    }
}

/// With endpoints `a`, `b` and so on.
fn upstream(endpoints: &str) -> Upstream {
    let anywhere = || Endpoint::at("127.0.0.1:80".parse().unwrap());
    let endpoint = |name: char| Endpoint { authority: name.to_string().into(), ..anywhere() };
    let set = EndpointSet::new(Vec::new(), None);
    set.replace(Arc::new(endpoints.chars().map(endpoint).collect()));
    Upstream {
        name: "api".into(),
        protocol: UpstreamProtocol::Auto,
        tls: None,
        kind: UpstreamKind::Endpoints(set),
        max_age: None,
        min_connections: 0,
        proxy_protocol: None,
        connect_timeout: Duration::from_secs(1),
        response_timeout: Duration::from_secs(1),
        idle_timeout: Duration::from_secs(1),
        max_connections: 10,
        balance: Balance::LeastRequests,
        slow_start: Duration::ZERO,
        panic_below: 0.0,
        health: Some(check()),
        adaptive: None,
        outlier: Some(outlier()),
        max_requests: None,
        max_pending: 0,
        retry: None,
    }
}

fn follow(group: &Group, upstream: &Upstream, now: Nanos) -> Option<Event> {
    group.follow(upstream, &upstream.endpoints(), now)
}

fn following(upstream: &Upstream) -> Group {
    let group = Group::default();
    assert_eq!(follow(&group, upstream, 0), None);
    group
}

/// The endpoints that are used, in a word.
fn used(group: &Group) -> String {
    let states = group.states(0, SystemTime::UNIX_EPOCH);
    states.into_iter().filter(|state| state.used).map(|state| state.address.to_string()).collect()
}

fn says(group: &Group, endpoint: &str, well: bool, now: Nanos) -> Option<Change> {
    group.checked(endpoint, &check(), well, now).0
}

fn eject(group: &Group, endpoint: &str, now: Nanos) -> Vec<Event> {
    group.eject(&group.standing(endpoint).unwrap(), Gone::ConsecutiveFailures, now)
}

#[test]
fn what_is_unwell_is_not_used_until_it_is_well() {
    let group = following(&upstream("ab"));
    assert_eq!(says(&group, "a", false, 1), Some(Change::Unhealthy { after: 1 }));
    assert_eq!((says(&group, "a", false, 2), used(&group).as_str()), (None, "b"), "said once");
    assert_eq!(says(&group, "a", true, 3), Some(Change::Healthy { after: 1 }));
    assert_eq!(used(&group), "ab");
    assert_eq!(says(&group, "z", false, 4), None);
}

#[test]
fn an_answer_that_another_configuration_asked_for_says_nothing() {
    let group = following(&upstream("ab"));
    let other = HealthCheck { interval: Duration::from_secs(9), ..check() };
    assert_eq!(group.checked("a", &other, false, 1), (None, None));
    let unwatched = Upstream { health: None, ..upstream("ab") };
    says(&group, "a", false, 2);
    follow(&group, &unwatched, 3);
    assert_eq!(used(&group), "ab", "whom nobody asks, nobody can call unwell");
    assert_eq!((says(&group, "a", false, 4), used(&group).as_str()), (None, "ab"));
}

#[test]
fn an_ejection_ends_in_time_and_the_next_is_longer() {
    let group = following(&upstream("ab"));
    for (begin, length) in [(100, 30), (131, 60), (192, 90)] {
        let begin = begin * SECOND;
        let ejected = eject(&group, "a", begin);
        assert!(matches!(&*ejected, [Event::Ejected { length: l, .. }] if *l == Duration::from_secs(length)), "{ejected:?}");
        assert_eq!(eject(&group, "a", begin + 1), [], "it is out already");
        let end = begin + length * SECOND;
        assert_eq!((group.tick(end - 1), used(&group).as_str()), (Vec::new(), "b"));
        assert!(matches!(&*group.tick(end), [Event::Returned { .. }]));
        assert_eq!(used(&group), "ab");
    }
}

#[test]
fn no_more_than_the_share_is_ejected() {
    let group = following(&upstream("abcde"));
    for (endpoint, left) in [("a", "bcde"), ("b", "cde"), ("c", "cde"), ("d", "cde")] {
        eject(&group, endpoint, SECOND);
        assert_eq!(used(&group), left, "after {endpoint}");
    }
    let alone = following(&upstream("a"));
    assert_eq!((eject(&alone, "a", SECOND), used(&alone).as_str()), (Vec::new(), "a"));
}

#[test]
fn a_window_with_too_few_good_answers_ejects_the_worst_first() {
    let rate = SuccessRate { minimum_requests: 10, below: 0.8, window: Duration::from_secs(10) };
    let group = following(&Upstream { outlier: Some(Outlier { success_rate: Some(rate), ..outlier() }), ..upstream("abc") });
    let answers = |endpoint: &str, good, bad| {
        let standing = group.standing(endpoint).unwrap();
        (0..good).for_each(|_| standing.succeeded(Counts::Rate));
        for _ in 0..bad {
            standing.failed(Counts::Rate);
        }
    };
    answers("a", 70, 30);
    answers("b", 0, 9);
    answers("c", 50, 50);
    assert_eq!((group.tick(10 * SECOND - 1), used(&group).as_str()), (Vec::new(), "abc"));
    assert!(matches!(&*group.tick(10 * SECOND), [Event::Ejected { why: Gone::SuccessRate, .. }]));
    assert_eq!(used(&group), "ab", "one of three is the share, b had too few answers");
    answers("b", 0, 9);
    group.tick(20 * SECOND);
    assert_eq!(used(&group), "ab", "the next window begins with nothing");
}

#[test]
fn with_too_few_in_order_all_but_the_drained_are_used() {
    let group = following(&Upstream { panic_below: 0.5, ..upstream("abcde") });
    assert!(matches!(&*group.set_drained("e", true, 1).unwrap(), [Event::Drained { .. }]), "whoever is drained is not missed");
    says(&group, "a", false, 2);
    says(&group, "b", false, 3);
    assert_eq!((used(&group).as_str(), group.mode()), ("cd", Mode::Usual), "two of four are half");
    let (_, event) = group.checked("c", &check(), false, 4);
    assert_eq!(event, Some(Event::Panic { in_order: 1, of: 4 }));
    assert_eq!((used(&group).as_str(), group.mode()), ("abcd", Mode::Panic));
    let (_, event) = group.checked("a", &check(), true, 5);
    assert_eq!(event, Some(Event::Calm { in_order: 2, of: 4 }));
    assert_eq!(used(&group), "ad");
}

#[test]
fn without_a_panic_none_may_be_left() {
    let group = following(&upstream("ab"));
    says(&group, "a", false, 1);
    says(&group, "b", false, 2);
    assert_eq!(used(&group), "");
}

#[test]
fn who_returns_begins_slowly_and_only_then() {
    let group = following(&Upstream { slow_start: Duration::from_secs(10), ..upstream("ab") });
    let share = |endpoint: &str| group.standing(endpoint).unwrap().share();
    assert_eq!(share("a"), FULL, "at the start nobody is new");
    says(&group, "a", false, 99 * SECOND);
    eject(&group, "a", 99 * SECOND);
    says(&group, "a", true, 100 * SECOND);
    assert_eq!((share("a"), used(&group).as_str()), (FULL, "b"), "still ejected");
    group.tick(129 * SECOND);
    assert_eq!((share("a"), used(&group).as_str()), (FULL / 100, "ab"));
    for (second, expected) in [(130, FULL / 10), (134, FULL / 2), (138, FULL * 9 / 10), (139, FULL), (500, FULL)] {
        group.tick(second * SECOND);
        assert_eq!(share("a"), expected, "at {second} s");
    }
    assert_eq!(share("b"), FULL);
    group.set_drained("b", true, 600 * SECOND);
    group.set_drained("b", false, 601 * SECOND);
    assert_eq!(share("b"), FULL / 100);
    follow(&group, &upstream("ab"), 602 * SECOND);
    assert_eq!(share("b"), FULL, "a reload without slow start ends it");
}

#[test]
fn a_reload_keeps_what_stays_and_forgets_what_goes() {
    let group = following(&upstream("abcd"));
    says(&group, "a", false, SECOND);
    eject(&group, "b", SECOND);
    group.set_drained("c", true, SECOND);
    let before = group.standing("a").unwrap();
    before.begin();
    follow(&group, &upstream("cbae"), 2 * SECOND);
    assert_eq!(used(&group), "e");
    assert!(Arc::ptr_eq(&before, &group.standing("a").unwrap()) && before.load() == 1);
    follow(&group, &upstream("e"), 3 * SECOND);
    assert!(group.standing("a").is_none());
    follow(&group, &upstream("abce"), 4 * SECOND);
    assert_eq!(used(&group), "abce", "whoever was away is new");
    eject(&group, "b", 5 * SECOND);
    follow(&group, &Upstream { outlier: None, ..upstream("abce") }, 6 * SECOND);
    assert_eq!(used(&group), "abce", "without outlier nobody is ejected");
}

#[test]
fn an_endpoint_that_a_reload_adds_begins_slowly() {
    let slow = |endpoints| Upstream { slow_start: Duration::from_secs(10), ..upstream(endpoints) };
    let group = following(&slow("a"));
    follow(&group, &slow("ab"), SECOND);
    let share = |endpoint: &str| group.standing(endpoint).unwrap().share();
    assert_eq!((share("a"), share("b")), (FULL, FULL / 100));
}

#[test]
fn an_operators_word_is_said_once_and_needs_an_endpoint() {
    let group = following(&upstream("ab"));
    assert!(matches!(&*group.set_drained("a", true, 1).unwrap(), [Event::Drained { .. }]));
    assert_eq!(group.set_drained("a", true, 2), Some(Vec::new()));
    assert_eq!(used(&group), "b");
    assert!(matches!(&*group.set_drained("a", false, 3).unwrap(), [Event::Enabled { .. }]));
    assert_eq!(group.set_drained("z", true, 4), None);
}

/// What can happen to a group of six.
#[derive(Debug, Clone)]
enum Happens {
    Checked(usize, bool),
    Ejected(usize),
    Drained(usize, bool),
    Tick(u64),
    Reload(f64),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        (0..6_usize, any::<bool>()).prop_map(|(place, well)| Happens::Checked(place, well)),
        (0..6_usize).prop_map(Happens::Ejected),
        (0..6_usize, any::<bool>()).prop_map(|(place, drained)| Happens::Drained(place, drained)),
        (0..50_u64).prop_map(Happens::Tick),
        (0..=2_u32).prop_map(|halves| Happens::Reload(f64::from(halves) / 2.0)),
    ]
}

/// An endpoint in the plainest words.
#[derive(Debug, Clone, Copy, Default)]
struct Plain {
    unhealthy: bool,
    ejected: Option<Nanos>,
    drained: bool,
}

proptest! {
    /// Whatever happens in whatever order: who is used is what a list of plain flags says, no more than half are ever ejected, and every weight is
    /// whole again when enough time has passed.
    #[test]
    fn who_is_used_is_what_plain_flags_say(story in prop::collection::vec(happens(), 1..60)) {
        let names = ["a", "b", "c", "d", "e", "f"];
        let mut rules = Upstream { slow_start: Duration::from_secs(10), ..upstream("abcdef") };
        let group = following(&rules);
        let (mut plain, mut now) = ([Plain::default(); 6], 0);
        for step in story {
            match step {
                Happens::Checked(place, well) => {
                    says(&group, names[place], well, now);
                    plain[place].unhealthy = !well;
                }
                Happens::Ejected(place) => {
                    let events = eject(&group, names[place], now);
                    let length = events.iter().find_map(|event| match event {
                        Event::Ejected { length, .. } => Some(*length),
                        _ => None,
                    });
                    let may = plain[place].ejected.is_none() && plain.iter().filter(|one| one.ejected.is_some()).count() < 3;
                    prop_assert_eq!(length.is_some(), may);
                    if let Some(length) = length {
                        plain[place].ejected = Some(now + saturating_nanos(length));
                    }
                }
                Happens::Drained(place, drained) => {
                    group.set_drained(names[place], drained, now);
                    plain[place].drained = drained;
                }
                Happens::Tick(seconds) => {
                    now += seconds * SECOND;
                    group.tick(now);
                    plain.iter_mut().for_each(|one| one.ejected = one.ejected.filter(|until| *until > now));
                }
                Happens::Reload(panic_below) => {
                    rules.panic_below = panic_below;
                    follow(&group, &rules, now);
                }
            }
            let candidates = plain.iter().filter(|one| !one.drained).count();
            let well = |one: &Plain| !one.drained && !one.unhealthy && one.ejected.is_none();
            let in_order = plain.iter().filter(|one| well(one)).count();
            #[expect(clippy::cast_precision_loss, reason = "six at most")]
            let panics = (in_order as f64) < candidates as f64 * rules.panic_below;
            let expected = names.iter().zip(&plain).filter(|(_, one)| if panics { !one.drained } else { well(one) });
            let expected: String = expected.map(|(name, _)| *name).collect();
            prop_assert_eq!(used(&group), expected);
        }
        group.tick(now + 11 * SECOND);
        group.tick(now + 400 * SECOND);
        group.tick(now + 411 * SECOND);
        prop_assert!(names.iter().all(|name| group.standing(name).unwrap().share() == FULL));
    }
}

#[test]
fn the_first_rank_that_has_somebody_in_order_is_used() {
    let ranked = upstream("");
    let endpoints: Vec<_> = [("a", 0), ("b", 0), ("c", 1), ("d", 1), ("e", 2)]
        .map(|(name, rank)| Endpoint { authority: name.into(), rank, ..Endpoint::at("127.0.0.1:80".parse().unwrap()) })
        .to_vec();
    let group = Group::default();
    group.follow(&ranked, &endpoints, 0);
    assert_eq!(used(&group), "ab");
    says(&group, "a", false, 1);
    assert_eq!(used(&group), "b");
    says(&group, "b", false, 2);
    assert_eq!(used(&group), "cd");
    group.set_drained("c", true, 3);
    group.set_drained("d", true, 3);
    assert_eq!(used(&group), "e");
    says(&group, "e", false, 4);
    assert_eq!(used(&group), "", "nobody is in order");
    says(&group, "a", true, 5);
    assert_eq!(used(&group), "a");
    group.set_drained("c", false, 6);
    assert_eq!(used(&group), "a", "a better rank is there");
    let flat: Vec<_> = endpoints.into_iter().map(|endpoint| Endpoint { rank: 0, ..endpoint }).collect();
    group.follow(&ranked, &flat, 7);
    assert_eq!(used(&group), "ac", "nobody stands by any more");
}

#[test]
fn a_panic_uses_the_rank_that_is_in_force() {
    let careless = Upstream { panic_below: 0.6, ..upstream("") };
    let endpoints: Vec<_> = [("a", 0), ("b", 0), ("c", 1)]
        .map(|(name, rank)| Endpoint { authority: name.into(), rank, ..Endpoint::at("127.0.0.1:80".parse().unwrap()) })
        .to_vec();
    let group = Group::default();
    group.follow(&careless, &endpoints, 0);
    says(&group, "a", false, 1);
    assert!(group.panics() && used(&group) == "ab", "{}", used(&group));
}
