//! Counters outlive the configuration: who had used up a limit stays refused, and a changed rate applies at once.

use crate::harness::{Gateway, Origin, Table};

fn limit(rate: &str, algorithm: &str) -> String {
    format!("limits: [{{ name: quota, per: ip, rate: {rate}, algorithm: {algorithm} }}]")
}

/// Rate before, requests before, rate after, how many more are admitted at once.
#[rustfmt::skip]
const ROWS: &[(&str, usize, &str, usize)] = &[
    ("5/hour", 5, "5/hour", 0),
    ("5/hour", 5, "10/hour", 5),
    ("5/hour", 5, "2/hour", 0),
    ("5/hour", 3, "5/hour", 2),
    ("5/hour", 3, "10/hour", 7),
    ("5/hour", 3, "4/hour", 1),
    ("5/hour", 3, "2/hour", 0),
    ("5/hour", 5, "5/day", 0),
    ("10/hour", 4, "10/day", 6),
    ("5/hour", 0, "2/hour", 2),
];

#[test]
fn usage_is_carried_over_in_cells() {
    for algorithm in ["gcra", "fixed_window"] {
        let mut table = Table::new("rates before and after");
        for (before, used, after, more) in ROWS {
            let origin = Origin::ok();
            let gateway = Gateway::before(&origin, &limit(before, algorithm));
            assert_eq!(gateway.statuses(*used, "/"), vec![200; *used]);
            gateway.reload(&limit(after, algorithm));
            let statuses = gateway.statuses(more + 2, "/");
            let admitted = statuses.iter().filter(|status| **status == 200).count();
            let name = format!("{algorithm}: {used} of {before}, then {after}");
            table.row(&name, if admitted == *more { String::new() } else { format!("{admitted} more are admitted, not {more}") });
        }
    }
}

#[test]
fn a_change_elsewhere_in_the_file_does_not_touch_a_limit() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &limit("5/hour", "gcra"));
    assert_eq!(gateway.statuses(5, "/"), [200; 5]);
    gateway.reload(&format!("{}\ntiers: [free, paid]\nblocked: [{{ ip: 192.0.2.0/24 }}]", limit("5/hour", "gcra")));
    assert_eq!(gateway.get("/").status, 429);
    let with_another = limit("5/hour", "gcra").replace("limits: [", "limits: [{ name: first, per: global, rate: 1000/s }, ");
    gateway.reload(&with_another);
    assert_eq!(gateway.get("/").status, 429, "a limit before it in the file makes no difference");
}

#[test]
fn another_rate_for_somebody_else_refills_nobody() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &limit("3/hour", "gcra"));
    assert_eq!(gateway.statuses(4, "/"), [200, 200, 200, 429]);
    let override_of_one = "clients: [{ id: other, limits: { quota: 1000/s } }]";
    gateway.reload(&format!("{}\n{override_of_one}", limit("3/hour", "gcra")));
    assert_eq!(gateway.get("/").status, 429, "a client's override");
    let by_tier = limit("{ first: 3/hour, second: 1000/s }", "gcra");
    gateway.reload(&format!("tiers: [first, second]\n{by_tier}"));
    assert_eq!(gateway.get("/").status, 429, "another tier's rate");
    gateway.reload(&limit("3/hour", "gcra"));
    assert_eq!(gateway.get("/").status, 429, "and back");
}

#[test]
fn a_removed_limit_stops_and_a_renamed_one_starts_afresh() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &limit("1/hour", "gcra"));
    assert_eq!(gateway.statuses(2, "/"), [200, 429]);
    gateway.reload("");
    assert_eq!(gateway.statuses(3, "/"), [200; 3]);
    gateway.reload(&limit("1/hour", "gcra").replace("quota", "other"));
    assert_eq!(gateway.statuses(2, "/"), [200, 429]);
}

#[test]
fn shadow_and_enforce_can_be_switched() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &limit("1/hour", "gcra").replace("quota", "quota, mode: shadow"));
    assert_eq!(gateway.statuses(3, "/"), [200; 3]);
    gateway.reload(&limit("1/hour", "gcra"));
    assert_eq!(gateway.get("/").status, 429, "what was counted in shadow mode counts");
}
