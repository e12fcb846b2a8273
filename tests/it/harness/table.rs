//! Tables of inputs and what must be seen at either end. A table reports every row that failed, not just the first.

use super::{Client, Gateway, Origin, Seen, exchange};

/// What must have reached the upstream.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sees {
    /// No request at all.
    Nothing,
    /// No complete request; an aborted one is allowed.
    NothingWhole,
    /// One complete request; its lower-cased head has each of the first as a whole line, and no line that starts
    /// with one of the second.
    One(&'static [&'static str], &'static [&'static str]),
    /// Nothing or one complete request, which then has these lines and not those.
    AtMost(&'static [&'static str], &'static [&'static str]),
}

/// Failures of a table's rows, reported together when it goes out of scope.
pub(crate) struct Table {
    title: &'static str,
    rows: usize,
    failures: Vec<String>,
}

impl Table {
    pub(crate) fn new(title: &'static str) -> Self {
        Self { title, rows: 0, failures: Vec::new() }
    }

    /// One row: `problem` is empty when it holds.
    pub(crate) fn row(&mut self, name: &str, problem: impl Into<String>) {
        self.rows += 1;
        let problem = problem.into();
        if !problem.is_empty() {
            self.failures.push(format!("{name}: {problem}"));
        }
    }

    /// One row whose outcome must fit a pattern of [`fits`].
    pub(crate) fn outcome(&mut self, name: &str, expected: &str, seen: &str) {
        let problem = if fits(expected, seen) { String::new() } else { format!("expected {expected}, seen {seen}") };
        self.row(name, problem);
    }

    /// Sends `request` to `gateway` and compares both ends.
    pub(crate) fn send(&mut self, gateway: &Gateway, origin: &Origin, name: &str, request: &[u8], client: &str, sees: Sees) {
        origin.forget();
        let reply = exchange(gateway.addr(), request);
        let mut problems = Vec::new();
        if !fits(client, &reply.outcome()) {
            problems.push(format!("expected {client}, the client got {}", reply.outcome()));
        }
        problems.extend(sees.problem(&reached(gateway, origin)));
        self.row(name, problems.join("; "));
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if !std::thread::panicking() && !self.failures.is_empty() {
            panic!("{}: {} of {} rows\n  {}", self.title, self.failures.len(), self.rows, self.failures.join("\n  "));
        }
    }
}

impl Sees {
    /// What is wrong with the requests that arrived.
    pub(crate) fn problem(self, seen: &[Seen]) -> Option<String> {
        let whole: Vec<&Seen> = seen.iter().filter(|seen| seen.complete()).collect();
        let garbage = seen.iter().find(|seen| matches!(seen.ending, super::origin::Ending::Garbage(_)));
        if let Some(seen) = garbage {
            return Some(format!("malformed upstream: {:?} in {:?}", seen.ending, String::from_utf8_lossy(&seen.wire)));
        }
        match (self, whole.as_slice()) {
            (Self::Nothing, _) if !seen.is_empty() => Some(format!("reached the upstream: {:?}", lines(seen))),
            (Self::NothingWhole, [_, ..]) => Some(format!("reached the upstream whole: {:?}", lines(seen))),
            (Self::One(..), []) => Some(format!("no complete request upstream, only {:?}", lines(seen))),
            (Self::One(..) | Self::AtMost(..), [_, _, ..]) => Some(format!("several requests upstream: {:?}", lines(seen))),
            (Self::One(has, lacks) | Self::AtMost(has, lacks), [one]) => head_problem(one, has, lacks),
            _ => None,
        }
    }
}

fn lines(seen: &[Seen]) -> Vec<&str> {
    seen.iter().map(|seen| seen.line.as_str()).collect()
}

fn head_problem(seen: &Seen, has: &[&str], lacks: &[&str]) -> Option<String> {
    let text = String::from_utf8_lossy(&seen.wire).to_lowercase();
    let head: Vec<&str> = text.split("\r\n").collect();
    let missing = has.iter().find(|wanted| !head.contains(&wanted.to_lowercase().as_str()));
    let unwanted = lacks.iter().find(|name| head.iter().any(|line| line.starts_with(&name.to_lowercase())));
    match (missing, unwanted) {
        (Some(line), _) => Some(format!("upstream lacks {line:?} in {head:?}")),
        (None, Some(name)) => Some(format!("upstream has {name:?} in {head:?}")),
        (None, None) => None,
    }
}

/// All that reached the upstream before a marker request sent now: by then earlier bytes have arrived.
pub(crate) fn reached(gateway: &Gateway, origin: &Origin) -> Vec<Seen> {
    let marker = "GET /marker HTTP/1.1";
    Client::connect(gateway.addr()).get("/marker");
    super::until("the marker reaches the upstream", || origin.lines().iter().any(|line| line == marker));
    let before = origin.seen().into_iter().filter(|seen| seen.line != marker).collect();
    origin.forget();
    before
}

/// Whether an outcome fits a pattern: alternatives separated by `|`, `x` for any digit.
pub(crate) fn fits(pattern: &str, outcome: &str) -> bool {
    let same = |p: char, o: char| p == o || (p == 'x' && o.is_ascii_digit());
    pattern
        .split('|')
        .any(|p| p.chars().count() == outcome.chars().count() && p.chars().zip(outcome.chars()).all(|(p, o)| same(p, o)))
}
