//! One client at one gateway is told by the shared store what it would be told by memory: the same requests, one after the other, at two gateways.
//!
//! `TOLLGATE_SEED` repeats a run; a failure prints it.

use super::{calls, store};
use crate::harness::{Client, Gateway, Origin, Random, RedisServer, Response, until};

const ALGORITHMS: [&str; 6] = ["gcra", "token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log"];

/// Why a charge is what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A request header says it.
    Asked,
    /// The same, and failures cost nothing.
    Refunded,
    /// A response header says it.
    Told,
    /// The response's body says it.
    Measured,
    /// It is 1 for one status, or nothing.
    Counted,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Asked, Self::Refunded, Self::Told, Self::Measured, Self::Counted];

    fn yaml(self) -> &'static str {
        match self {
            Self::Asked => "cost: { header: x-c, default: 1, max: 30 }",
            Self::Refunded => "cost: { header: x-c, default: 1, max: 30 }, refund: { status: 5xx }",
            Self::Told => "cost: { response_header: x-cost, reserve: 3, max: 30 }",
            Self::Measured => "cost: { response_json: usage.total_tokens, reserve: 3, max: 30 }",
            Self::Counted => "count: { status: 401 }",
        }
    }

    /// What is taken first, and what it comes to.
    fn costs(self, cost: u64, status: u16) -> (u64, u64) {
        match self {
            Self::Asked => (cost, cost),
            Self::Refunded => (cost, if status >= 500 { 0 } else { cost }),
            Self::Told | Self::Measured => (3, cost),
            Self::Counted => (1, u64::from(status == 401)),
        }
    }
}

/// One way to count, and how many cells it has been told of.
struct Side {
    gateway: Gateway,
    settled: u64,
}

impl Side {
    fn new(origin: &Origin, redis: &RedisServer, consistency: &str) -> Self {
        let mut yaml = format!("{}trusted_proxies: [127.0.0.1]\nlimits:\n", store(redis, ""));
        for algorithm in ALGORITHMS {
            for kind in Kind::ALL {
                // A cell a day and a half: how long the test takes changes no number.
                let numbers = format!("rate: 20/30d, algorithm: {algorithm}, consistency: {consistency}, {}", kind.yaml());
                let name = name(algorithm, kind);
                yaml += &format!("- {{ name: {name}, match: {{ path: '/{name}/{{*rest}}' }}, per: ip, {numbers} }}\n");
            }
        }
        let gateway = Gateway::before(origin, &yaml);
        until("the store is joined", || gateway.metric("tollgate_store_up", &[]) > 0.5);
        Self { gateway, settled: 0 }
    }

    /// Asks, and waits until what the response says of its cost is counted.
    fn ask(&mut self, name: &str, kind: Kind, cost: u64, status: u16) -> Told {
        let request = format!("GET /{name}/{status}/{cost} HTTP/1.1\r\nHost: a\r\nx-c: {cost}\r\n\r\n");
        let told = Told::of(&Client::connect(self.gateway.addr()).ask(request).response());
        if told.status != 429 && kind != Kind::Asked {
            self.settled += kind.costs(cost, status).1;
        }
        until("it is settled", || self.total("tollgate_settled_cells_total", &[]) == self.settled);
        told
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
    fn total(&self, metric: &str, labels: &[(&str, &str)]) -> u64 {
        self.gateway.metric(metric, labels) as u64
    }
}

/// What a response says of a limit.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    status: u16,
    remaining: u64,
    retry_after: Option<u64>,
}

impl Told {
    fn of(response: &Response) -> Self {
        let number = |field| response.header(field).map(|value| value.parse().unwrap());
        Self { status: response.status, remaining: number("x-ratelimit-remaining").unwrap(), retry_after: number("retry-after") }
    }

    /// The same, but for the time between both requests, which is far less than a cell takes. Windows begin at another time in each process' memory and in
    /// the store, so of those only whether it is told is the same.
    fn is_like(&self, other: &Self, algorithm: &str) -> bool {
        let near = match (self.retry_after, other.retry_after) {
            (Some(a), Some(b)) => a.abs_diff(b) <= 60 || algorithm.ends_with("_window"),
            (a, b) => a == b,
        };
        near && (self.status, self.remaining) == (other.status, other.remaining)
    }
}

fn name(algorithm: &str, kind: Kind) -> String {
    format!("{algorithm}-{kind:?}").to_lowercase().replace('_', "-")
}

fn origin() -> Origin {
    Origin::new(|call| {
        let target = call.target().to_owned();
        let mut parts = target.rsplit('/');
        let (cost, status) = (parts.next().unwrap(), parts.next().unwrap());
        let body = format!("{{\"usage\":{{\"total_tokens\":{cost}}}}}");
        let fields = format!("X-Cost: {cost}\r\nContent-Type: application/json\r\nContent-Length: {}", body.len());
        call.answer(format!("HTTP/1.1 {status} S\r\n{fields}\r\n\r\n{body}").as_bytes())
    })
}

#[test]
fn the_store_tells_one_client_what_memory_tells_it() {
    let seed: u64 = std::env::var("TOLLGATE_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut random = Random::new(seed);
    let mut below = |bound: usize| usize::try_from(random.below(bound as u64)).unwrap();
    let (origin, redis) = (origin(), RedisServer::start());
    let (mut memory, mut strict) = (Side::new(&origin, &redis, "local"), Side::new(&origin, &redis, "strict"));
    let (mut corrections, mut refused, mut admitted) = (0, 0, 0);
    let (mut algorithm, mut kind) = (ALGORITHMS[0], Kind::Asked);
    for number in 0..REQUESTS {
        // Several at once, as what is remembered is not always remembered for long.
        if below(3) == 0 {
            (algorithm, kind) = (ALGORITHMS[below(ALGORITHMS.len())], Kind::ALL[below(Kind::ALL.len())]);
        }
        // 21 and more is above the limit: never, if it is asked for; a debt, if a response says so.
        let mut cost = [0, 1, 1, 2, 3, 4, 5, 9, 20, 21, 25][below(11)];
        if kind == Kind::Measured {
            // So that the metric tells when it was settled.
            cost = cost.max(1);
        }
        let status = [200, 200, 401, 500][below(4)];
        let name = name(algorithm, kind);
        let [by_memory, by_store] = [&mut memory, &mut strict].map(|side| side.ask(&name, kind, cost, status));
        let what = format!("TOLLGATE_SEED={seed}, request {number}: {name} of {cost} with {status}");
        assert!(by_store.is_like(&by_memory, algorithm), "{what}: the store says {by_store:?}, and memory {by_memory:?}");
        let (taken, settled) = kind.costs(cost, status);
        if by_store.status == 429 {
            refused += 1;
        } else {
            admitted += 1;
            corrections += u64::from(taken != settled);
        }
        // Every script asks for the time once; those of heartbeats ask for a key's type too.
        until(&format!("{what}: the store knows it"), || {
            let asked = strict.total("tollgate_store_decisions_total", &[("source", "store")]);
            calls(&redis, "time") - calls(&redis, "type") == asked + corrections
        });
    }
    let remembered = strict.total("tollgate_store_decisions_total", &[("source", "remembered")]);
    assert!(
        refused > 100 && admitted > 100 && corrections > 50,
        "{refused} refused, {admitted} admitted, {corrections} corrected"
    );
    assert!(remembered > 20, "only {remembered} refusals were remembered");
}

const REQUESTS: u32 = 600;
