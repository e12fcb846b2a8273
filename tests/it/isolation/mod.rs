//! SM-18: whatever clients and upstreams do to each other, nobody ever gets a byte that is another request's.
//!
//! Every request has a marker of its own, its body is made of nothing else, and so is its answer. Clients of both versions go on side by
//! side, a thousand requests for each kind of upstream, on connections that are kept, pipelined and shared, and break off at random
//! points; so do the upstreams. Each received byte is looked at, of broken answers too, and each body that reached an upstream. What is
//! random has a seed that is printed.

mod http1;
mod http2;
mod upstreams;

use crate::harness::{Gateway, H2Origin, Origin, together};
use upstreams::Told;

/// Clients at the same time, half of them speaking HTTP/2.
const CLIENTS: usize = 4;
const ROUNDS: usize = 250;
const SEED: u64 = 0x5eed_0000_0000_0001;

/// What the upstream does about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    /// Answers when it has the whole request.
    Echo,
    /// Answers before it has read the body.
    Early,
    /// Breaks off within the answer.
    Break,
    /// Ends without a word.
    Vanish,
}

/// A request: its marker, how often that makes up the body and the answer, and what is to become of it.
#[derive(Debug, Clone)]
struct Errand {
    marker: String,
    asked: usize,
    answered: usize,
    deed: Deed,
}

impl Errand {
    fn new(who: usize, n: usize, random: &mut Random) -> Self {
        let deed = [Deed::Echo, Deed::Echo, Deed::Echo, Deed::Early, Deed::Break, Deed::Vanish][random.below(6)];
        // From nothing over what fits into one read to more than any buffer on the way.
        let repeated = |random: &mut Random| [0, 1, 3, 40, 900, 4_000][random.below(6)];
        Self { marker: format!("<{who}-{n:07}>"), asked: repeated(random), answered: repeated(random), deed }
    }

    fn path(&self) -> String {
        format!("/{}/{}/{:?}", self.marker.trim_matches(['<', '>']), self.answered, self.deed)
    }

    fn read(path: &str) -> Option<Self> {
        let mut parts = path.strip_prefix('/')?.split('/');
        let marker = format!("<{}>", parts.next()?);
        let answered = parts.next()?.parse().ok()?;
        let deed = match parts.next()? {
            "Early" => Deed::Early,
            "Break" => Deed::Break,
            "Vanish" => Deed::Vanish,
            _ => Deed::Echo,
        };
        Some(Self { marker, asked: 0, answered, deed })
    }

    fn body(&self) -> Vec<u8> {
        self.marker.repeat(self.asked).into_bytes()
    }

    fn answer(&self) -> Vec<u8> {
        self.marker.repeat(self.answered).into_bytes()
    }

    /// What is wrong with an answer that claims to be whole.
    fn judge(&self, status: u16, marks: &[&str], body: &[u8]) -> Option<String> {
        match status {
            200 if body == self.answer() && marks == [self.marker.trim_matches(['<', '>'])] => None,
            // Whoever's upstream breaks off or vanishes may be told so.
            502 | 503 if self.deed != Deed::Echo => foreign(body, &self.marker),
            _ => Some(format!("{self:?}: {status}, marks {marks:?}, {} bytes of {}", body.len(), self.answer().len())),
        }
    }
}

/// Any marker in there that is another one, be it cut, at the end or by the framing of chunks.
fn foreign(bytes: &[u8], own: &str) -> Option<String> {
    let at = (0..bytes.len()).filter(|at| bytes[*at] == b'<');
    let mut found =
        at.map(|at| bytes[at..bytes.len().min(at + own.len())].split(|byte| *byte == b'\r').next().unwrap_or_default());
    let found = found.find(|found| !own.as_bytes().starts_with(found))?;
    Some(format!("{:?} among the bytes of {own}", String::from_utf8_lossy(found)))
}

/// xorshift64*: enough to be unsystematic, the same every time.
struct Random(u64);

impl Random {
    fn of(who: usize) -> Self {
        Self(SEED.wrapping_mul(2 * who as u64 + 1))
    }

    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n as u64).unwrap()
    }
}

/// Sends all clients on their errands, and says what they and the upstream have found.
fn problems(gateway: &Gateway, told: &Told) -> Vec<String> {
    gateway.get("/healthy");
    let mut problems =
        together(
            CLIENTS,
            |who| {
                if who % 2 == 0 { http1::client(gateway, who, ROUNDS) } else { http2::client(gateway, who, ROUNDS) }
            },
        )
        .concat();
    problems.extend(told.lock().unwrap().drain(..));
    problems
}

fn judge(gateway: &Gateway, told: &Told) {
    let problems = problems(gateway, told);
    assert!(
        problems.is_empty(),
        "seed {SEED:#x}: {} problems\n{}",
        problems.len(),
        problems[..problems.len().min(10)].join("\n")
    );
    assert_eq!(gateway.get("/healthy").status, 200);
}

const WORKERS: &str = "workers: 2\nlisteners: [{ name: public, address: '127.0.0.1:0', max_connections_per_ip: 0 }]";

#[test]
fn nobody_sees_anothers_bytes_in_front_of_an_http1_upstream() {
    let told = Told::default();
    let theirs = Told::clone(&told);
    let origin = Origin::new(move |call| upstreams::http1(call, &theirs));
    let gateway = Gateway::before(&origin, WORKERS);
    judge(&gateway, &told);
    let garbage = origin.seen().into_iter().find(|seen| matches!(seen.ending, crate::harness::Ending::Garbage(_)));
    assert!(garbage.is_none(), "{garbage:?}");
}

#[test]
fn nobody_sees_anothers_bytes_in_front_of_an_http2_upstream() {
    let told = Told::default();
    let theirs = Told::clone(&told);
    let origin = H2Origin::new(move |call| upstreams::http2(call, &theirs));
    let gateway = Gateway::before_http2(&origin, WORKERS);
    judge(&gateway, &told);
}

#[test]
fn a_foreign_marker_is_found() {
    assert_eq!(foreign(b"<1-0000001><1-0000001><1-00", "<1-0000001>"), None);
    assert!(foreign(b"<1-0000001><1-0000002>", "<1-0000001>").is_some());
    assert!(foreign(b"<1-0000001><2", "<1-0000001>").is_some());
    assert_eq!(foreign(b"<1-00\r\n1000\r\n00001>", "<1-0000001>"), None);
}
