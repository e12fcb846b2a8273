//! A client of HTTP/1.1 that keeps connections, pipelines, and breaks off.

use super::{Deed, Errand, Random, foreign};
use crate::harness::{Client, Gateway, Reply, fields};

pub(super) fn client(gateway: &Gateway, who: usize, rounds: usize) -> Vec<String> {
    let mut random = Random::of(who);
    let mut problems = Vec::new();
    let mut client = gateway.client();
    let mut n = 0;
    let mut next = |random: &mut Random| {
        n += 1;
        Errand::new(who, n, random)
    };
    for _ in 0..rounds {
        let errand = next(&mut random);
        let going_on = match random.below(8) {
            0 => leave_within_the_request(client, &errand, &mut random),
            1 => leave_within_the_answer(client, &errand, &mut random, &mut problems),
            2 | 3 => pipeline(client, vec![errand, next(&mut random), next(&mut random)], &mut problems),
            _ => pipeline(client, vec![errand], &mut problems),
        };
        client = going_on.unwrap_or_else(|| gateway.client());
    }
    problems
}

/// The request's bytes; which framing is up to the marker's number.
fn wire(errand: &Errand) -> Vec<u8> {
    let (path, body) = (errand.path(), errand.body());
    let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\n");
    if errand.marker.ends_with(['1', '3', '5', '7', '9', '>']) && errand.asked == 3 {
        let (first, second) = body.split_at(body.len() / 2);
        let chunk = |piece: &[u8]| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
        let head = format!("{head}Transfer-Encoding: chunked\r\n\r\n");
        return [head.into_bytes(), chunk(first), chunk(second), b"0\r\n\r\n".to_vec()].concat();
    }
    [format!("{head}Content-Length: {}\r\n\r\n", body.len()).into_bytes(), body].concat()
}

fn leave_within_the_request(mut client: Client, errand: &Errand, random: &mut Random) -> Option<Client> {
    let bytes = wire(errand);
    client.send(&bytes[..random.below(bytes.len())]);
    leave(client, random)
}

/// With FIN or with RST.
fn leave(client: Client, random: &mut Random) -> Option<Client> {
    if random.below(2) == 0 {
        client.reset();
    }
    None
}

fn leave_within_the_answer(
    mut client: Client,
    errand: &Errand,
    random: &mut Random,
    problems: &mut Vec<String>,
) -> Option<Client> {
    client.send(wire(errand));
    // No more than is sure to come, whatever becomes of it.
    let wanted = if errand.deed == Deed::Echo { 1 + random.below(errand.answer().len() + 50) } else { 1 };
    let mut had = 0;
    while client.grown().len() < wanted {
        client.grow();
        if client.grown().len() == had {
            break;
        }
        had = client.grown().len();
    }
    problems.extend(foreign(client.grown(), &errand.marker));
    leave(client, random)
}

/// All at once, then one answer after the other; `None` if the connection is not there any more.
fn pipeline(mut client: Client, errands: Vec<Errand>, problems: &mut Vec<String>) -> Option<Client> {
    client.send(errands.iter().flat_map(wire).collect::<Vec<u8>>());
    for errand in &errands {
        match client.receive() {
            Reply::Response(response) if response.cut => {
                problems.extend(foreign(&response.body, &errand.marker));
                problems.extend((errand.deed != Deed::Break).then(|| format!("{errand:?} was cut: {}", response.status)));
                return None;
            }
            Reply::Response(response) => {
                problems.extend(errand.judge(response.status, &fields(&response.headers, "x-mark"), &response.body));
                if response.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")) {
                    return None;
                }
            }
            // The answer to an upstream that breaks off may be nothing at all; what is behind it is lost with it.
            Reply::Closed | Reply::Reset if errands.iter().any(|errand| errand.deed != Deed::Echo) => return None,
            Reply::Garbage(text) => {
                problems.extend(foreign(text.as_bytes(), &errand.marker));
                return None;
            }
            other => {
                problems.push(format!("{errand:?}: {other:?}"));
                return None;
            }
        }
    }
    Some(client)
}
