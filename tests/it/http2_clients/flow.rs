//! RFC 9113 §5.2, §6.9: windows in both directions.

use super::*;
use crate::harness::setting;

fn grow(client: &mut H2, stream: u32, by: u32) {
    client.frame(kind::WINDOW_UPDATE, 0, stream, &by.to_be_bytes());
}

const MOST: u32 = (1 << 31) - 1;

#[rustfmt::skip]
const UPDATES: &[Row] = &[
    ("0 for the connection", |c| grow(c, 0, 0), Connection(PROTOCOL)),
    ("0 for a stream", |c| { ask(c, 1, "/stall"); grow(c, 1, 0); }, Stream(1, PROTOCOL)),
    ("0 beside the reserved bit", |c| grow(c, 0, 1 << 31), Connection(PROTOCOL)),
    ("of 3 octets", |c| c.frame(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 1]), Connection(FORM)),
    ("of 5 octets", |c| c.frame(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 0, 1]), Connection(FORM)),
    ("the connection's window beyond 2^31 - 1", |c| { grow(c, 0, MOST); grow(c, 0, MOST); }, Connection(FLOW)),
    ("a stream's window beyond 2^31 - 1", |c| { ask(c, 1, "/stall"); grow(c, 1, MOST); grow(c, 1, MOST); }, Stream(1, FLOW)),
    ("SETTINGS that lift a stream's window beyond 2^31 - 1", |c| {
        ask(c, 1, "/stall");
        grow(c, 1, MOST - (1 << 20));
        c.frame(kind::SETTINGS, 0, 0, &setting(4, MOST));
    }, Connection(FLOW)),
];

#[test]
fn windows_grow_and_do_not_overflow() {
    run("WINDOW_UPDATE", UPDATES);
}

/// Lengths of the DATA frames of a stream.
fn pieces(client: &H2, stream: u32) -> Vec<usize> {
    client
        .frames
        .iter()
        .filter(|frame| frame.kind == kind::DATA && frame.stream == stream)
        .map(|frame| frame.payload.len())
        .collect()
}

#[test]
fn no_more_is_sent_than_the_window_allows() {
    let bench = Bench::new();
    for (way, dial) in &bench.ways {
        let mut client = bench.silent(dial.as_ref());
        client.greet(1);
        ask(&mut client, 1, "/hundred");
        for n in 1..100 {
            client.pump(|client| pieces(client, 1).iter().sum::<usize>() == n);
            // An answered PING says that nothing more was to be sent.
            let pongs = |client: &H2| client.frames.iter().filter(|frame| frame.kind == kind::PING).count();
            let before = pongs(&client);
            client.frame(kind::PING, 0, 0, &[1; 8]);
            client.pump(|client| pongs(client) > before);
            assert_eq!(pieces(&client, 1).iter().sum::<usize>(), n, "{way}");
            grow(&mut client, 1, 1);
        }
        assert_eq!(client.receive(1).body.len(), 100, "{way}");
    }
}

#[test]
fn settings_move_the_windows_of_open_streams_below_zero_and_back() {
    let bench = Bench::new();
    for (way, dial) in &bench.ways {
        let mut client = bench.silent(dial.as_ref());
        client.greet(3);
        ask(&mut client, 1, "/hundred");
        client.pump(|client| pieces(client, 1).iter().sum::<usize>() == 3);
        // From 0 to -3; two octets of window are none.
        client.frame(kind::SETTINGS, 0, 0, &setting(4, 0));
        grow(&mut client, 1, 2);
        client.frame(kind::PING, 0, 0, &[1; 8]);
        client.pump(|client| client.frames.iter().any(|frame| frame.kind == kind::PING));
        assert_eq!(pieces(&client, 1).iter().sum::<usize>(), 3, "{way}");
        grow(&mut client, 1, 2);
        client.pump(|client| pieces(client, 1).iter().sum::<usize>() == 4);
        client.frame(kind::SETTINGS, 0, 0, &setting(4, 1_000));
        assert_eq!(client.receive(1).body.len(), 100, "{way}");
    }
}

/// A client that sends more than its window ends its stream or its connection; what the gateway holds stays bounded.
#[test]
fn a_client_that_ignores_its_window_is_cut_off() {
    let bench = Bench::new();
    bench.gateway.get("/warm-up");
    for (way, dial) in &bench.ways {
        let before = bench.gateway.rss();
        let mut client = bench.connect(dial.as_ref());
        begin(&mut client, 1, "/stall");
        for _ in 0..4_096 {
            client.frame(kind::DATA, 0, 1, &[0; 16 << 10]);
        }
        client.pump(|client| client.reset_of(1).is_some() || client.last_word().is_some());
        let said = client.reset_of(1).or(client.last_word());
        assert!(said == Some(code::FLOW_CONTROL_ERROR) || client.is_closed(), "{way}: {said:?}");
        let growth = bench.gateway.rss().saturating_sub(before);
        assert!(growth < 16 << 20, "{way}: memory grew by {} KiB", growth >> 10);
    }
}
