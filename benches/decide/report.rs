//! From nanoseconds to Markdown tables.

use std::fmt::{self, Write};
use std::time::Duration;

use crate::common::machine;
use crate::load::Case;

/// All measurements.
pub(crate) struct Report {
    heading: String,
    decisions: String,
    algorithms: String,
}

impl Report {
    pub(crate) fn new(rounds: u32, length: Duration) -> Self {
        let heading = format!("{}; {rounds} × {length:?}, medians (least–most), ns per decision.", machine());
        Self { heading, decisions: String::new(), algorithms: String::new() }
    }

    /// A row for us, governor by digest and governor by string, in this order.
    pub(crate) fn compare(&mut self, title: &str, case: Case, times: &[Vec<f64>]) {
        let [own, digests, strings] = times else { return };
        let (by_digest, by_string) = (relative(own, digests), relative(own, strings));
        let target = match case {
            _ if by_digest.is_nan() || by_string.is_nan() => String::new(),
            Case { limits: 1, .. } => target(by_digest <= 1.0 && by_string <= 0.3, "≤ 1.0, ≤ 0.3"),
            Case { limits: 5, keys: 1000, threads: 1 } => target(median(own.iter().copied()) < 250.0, "< 250 ns"),
            _ => String::new(),
        };
        let row =
            [summary(own), summary(digests), summary(strings), format!("{by_digest:.2}"), format!("{by_string:.2}"), target];
        write_line(&mut self.decisions, format_args!("| {title} | {} |", row.join(" | ")));
    }

    /// A row for each name; the last is what the others are compared with.
    pub(crate) fn list<'n>(&mut self, times: impl Iterator<Item = (&'n str, Vec<f64>)>) {
        let times: Vec<_> = times.collect();
        let Some((_, last)) = times.last() else { return };
        for (name, own) in &times {
            let row = format_args!("| {name} | {} | {:.2} |", summary(own), relative(own, last));
            write_line(&mut self.algorithms, row);
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.heading)?;
        writeln!(
            f,
            "| limits | keys each | threads | clock | tollgate | governor, digest | governor, String | ÷ digest | ÷ String | target |"
        )?;
        writeln!(f, "|---:|---:|---:|---|---:|---:|---:|---:|---:|---|")?;
        writeln!(f, "{}", self.decisions)?;
        writeln!(f, "One limit, 1000 keys, 1 thread:\n")?;
        writeln!(f, "| algorithm | ns | ÷ governor |\n|---|---:|---:|\n{}", self.algorithms)
    }
}

fn write_line(table: &mut String, row: fmt::Arguments<'_>) {
    // Writing to a string can't fail.
    let _ = writeln!(table, "{row}");
}

fn target(met: bool, target: &str) -> String {
    format!("{target}: {}", if met { "met" } else { "**missed**" })
}

fn summary(times: &[f64]) -> String {
    if times.iter().all(|time| time.is_nan()) {
        return "NaN".to_owned();
    }
    let (least, most) = times.iter().fold((f64::INFINITY, 0.0_f64), |(least, most), time| (least.min(*time), most.max(*time)));
    format!("{:.0} ({least:.0}–{most:.0})", median(times.iter().copied()))
}

/// Round by round: what slows a whole round down cancels out. Only if no round measured both, over all rounds.
fn relative(own: &[f64], peer: &[f64]) -> f64 {
    let by_round = median(own.iter().zip(peer).map(|(own, peer)| own / peer));
    if by_round.is_nan() { median(own.iter().copied()) / median(peer.iter().copied()) } else { by_round }
}

/// The median of what is known; of an even number of values, the mean of the two in the middle.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.filter(|value| !value.is_nan()).collect();
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2).copied().unwrap_or(f64::NAN);
    let lower = values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN);
    f64::midpoint(lower, upper)
}
