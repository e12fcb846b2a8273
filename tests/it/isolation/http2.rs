//! A client of HTTP/2 that has several streams at once, and resets some of them.

use super::{Deed, Errand, Random, foreign};
use crate::harness::{Gateway, H2, fields};

pub(super) fn client(gateway: &Gateway, who: usize, rounds: usize) -> Vec<String> {
    let mut random = Random::of(who);
    let mut problems = Vec::new();
    let mut client = H2::connect(gateway.addr());
    let mut begun = 0;
    while begun < rounds {
        let errands: Vec<Errand> = (0..=random.below(4)).map(|n| Errand::new(who, begun + n, &mut random)).collect();
        begun += errands.len();
        if random.below(30) == 0 || client.is_over() {
            // Whatever is under way on the old connection is left to itself.
            client = H2::connect(gateway.addr());
        }
        let streams: Vec<u32> = errands.iter().map(|errand| open(&mut client, errand)).collect();
        let mut left: Vec<(u32, &Errand)> = streams.into_iter().zip(&errands).collect();
        while !left.is_empty() {
            let (stream, errand) = left.swap_remove(random.below(left.len()));
            if random.below(6) == 0 {
                problems.extend(reset(&mut client, stream, errand, &mut random));
            } else {
                problems.extend(finish(&mut client, stream, errand, &mut random));
            }
        }
    }
    problems
}

fn open(client: &mut H2, errand: &Errand) -> u32 {
    let path = errand.path();
    client.open(&[(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", &path)], false)
}

/// Leaves within the request, or within the answer.
fn reset(client: &mut H2, stream: u32, errand: &Errand, random: &mut Random) -> Option<String> {
    let body = errand.body();
    let sent = random.below(body.len() + 1);
    client.data(stream, &body[..sent], sent == body.len());
    let wanted = random.below(errand.answer().len() + 1);
    let problem = (sent == body.len() && wanted > 0).then(|| {
        let so_far = client.receive_until(stream, |reply| reply.body.len() >= wanted);
        foreign(&so_far.body, &errand.marker)
    });
    client.cancel(stream);
    problem.flatten()
}

/// Sends the body in pieces, and wants the answer.
fn finish(client: &mut H2, stream: u32, errand: &Errand, random: &mut Random) -> Option<String> {
    let body = errand.body();
    let (first, second) = body.split_at(random.below(body.len() + 1));
    client.data(stream, first, false);
    client.data(stream, second, true);
    let reply = client.receive(stream);
    let marks = fields(&reply.headers, "x-mark");
    match (reply.status, reply.ended) {
        (Some(status), true) => errand.judge(status, &marks, &reply.body),
        // Reset, with or without a head: only if the upstream broke off or did not wait for the body.
        _ if errand.deed != Deed::Echo && reply.reset.is_some() => foreign(&reply.body, &errand.marker),
        _ => Some(format!("{errand:?}: {reply:?}")),
    }
}
