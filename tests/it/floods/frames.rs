//! HF-3, HF-4: frames that cost the sender nothing.

use super::{Memory, others_are_served};
use crate::harness::{Gateway, H2, Origin, flag, header_block, kind, setting};

/// HF-3: a header block without end.
#[test]
fn an_endless_header_block_ends_the_connection_and_costs_no_memory() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let memory = Memory::of(&gateway);
    for (name, first, piece) in [("large", &[][..], &[0; 4_000][..]), ("empty", &[0x82], &[]), ("of one byte", &[0x82], &[0x86])]
    {
        let mut attacker = H2::connect(gateway.addr());
        attacker.frame(kind::HEADERS, 0, 1, first);
        for _ in 0..5_000 {
            attacker.frame(kind::CONTINUATION, 0, 1, piece);
        }
        assert!(attacker.is_closed(), "{name}");
        memory.grew_at_most(4, name);
    }
    others_are_served(&gateway);
    assert!(origin.lines().iter().all(|line| !line.contains("flood")));
}

#[test]
fn control_frames_do_not_starve_others() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let many_settings: Vec<u8> = (0..100).flat_map(|n| setting(4, n)).collect();
    for (name, kind, flags, stream, payload) in [
        ("PING", kind::PING, 0, 0, vec![0; 8]),
        ("acknowledgements of no PING", kind::PING, flag::ACK, 0, vec![0; 8]),
        ("SETTINGS", kind::SETTINGS, 0, 0, vec![]),
        ("SETTINGS of a hundred windows", kind::SETTINGS, 0, 0, many_settings),
        ("WINDOW_UPDATE", kind::WINDOW_UPDATE, 0, 0, vec![0, 0, 0, 1]),
        ("PRIORITY", kind::PRIORITY, 0, 1, vec![0, 0, 0, 0, 1]),
        ("unknown frames", 0xfe, 0, 0, vec![0; 64]),
        ("GOAWAY", kind::GOAWAY, 0, 0, vec![0; 8]),
    ] {
        let memory = Memory::of(&gateway);
        let mut attacker = H2::connect(gateway.addr());
        for _ in 0..20_000 {
            attacker.frame(kind, flags, stream, &payload);
        }
        others_are_served(&gateway);
        memory.grew_at_most(8, name);
    }
    let lines = gateway.log().lines().count();
    assert!(lines < 100, "{lines} lines of log: a flood of frames must not be one of words");
}

/// Answers are owed for these, and the client takes none: what waits to be said stays bounded.
#[test]
fn a_client_that_does_not_read_is_owed_no_more_than_a_bound() {
    let origin = Origin::ok();
    let gateway =
        Gateway::before(&origin, "listeners: [{ name: public, address: '127.0.0.1:0', timeouts: { write_idle: 500ms } }]");
    for (name, kind, payload) in [("PING", kind::PING, vec![0; 8]), ("SETTINGS", kind::SETTINGS, vec![])] {
        let memory = Memory::of(&gateway);
        let mut attacker = H2::connect(gateway.addr());
        // 17 octets each: more than both sockets hold, unless the gateway reads on for ever.
        attacker.wire().tcp().set_write_timeout(Some(std::time::Duration::from_secs(2))).unwrap();
        let block: Vec<u8> = (0..4_096).flat_map(|_| H2::frame_bytes(kind, 0, 0, &payload)).collect();
        let mut taken = 0;
        while taken < 1_000 && attacker.try_write(&block) {
            taken += 1;
        }
        assert!(taken < 1_000, "{name}: all of {} MiB was taken", (taken * block.len()) >> 20);
        memory.grew_at_most(8, name);
        others_are_served(&gateway);
    }
}

/// Bodies of nothing: empty DATA, one octet at a time, and nothing but padding.
#[test]
fn bodies_of_nothing_end_the_connection_or_cost_nothing() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    for (name, flags, payload) in [("empty", 0, &b""[..]), ("one octet", 0, b"x"), ("only padding", flag::PADDED, b"\x01\0")] {
        let memory = Memory::of(&gateway);
        let mut attacker = H2::connect(gateway.addr());
        let post = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/flood")];
        let stream = attacker.open(&post, false);
        for _ in 0..20_000 {
            attacker.frame(kind::DATA, flags, stream, payload);
        }
        others_are_served(&gateway);
        // What fits into the windows in the smallest frames there are, each with its entry in the library's queue.
        memory.grew_at_most(16, name);
        attacker.frame(kind::DATA, flag::END_STREAM, stream, b"");
        let outcome = attacker.receive(stream).outcome();
        assert!(["200", "goaway", "closed", "rst"].contains(&outcome.as_str()), "{name}: {outcome}");
    }
}

/// Heads of nothing: streams with an empty block, and fields without a name.
#[test]
fn heads_of_nothing_cost_nothing() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let nameless: Vec<(&str, &str)> = vec![("", ""); 4_000];
    for (name, block) in [("empty blocks", Vec::new()), ("fields without a name", header_block(&nameless))] {
        let memory = Memory::of(&gateway);
        let mut attacker = H2::connect(gateway.addr());
        for n in 0..2_000 {
            attacker.frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 2 * n + 1, &block);
        }
        others_are_served(&gateway);
        // 2000 streams that are kept would be more.
        memory.grew_at_most(12, name);
    }
    assert!(origin.lines().iter().all(|line| !line.contains("flood")), "{:?}", origin.lines());
}

/// SL-6 for HTTP/1: as much of a head as a client cares to send.
#[test]
fn endless_heads_of_http1_end_at_a_bound() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let memory = Memory::of(&gateway);
    for (name, line) in
        [("one field", "x".repeat(1 << 10)), ("many fields", "x: 1\r\n".repeat(100)), ("empty lines", "\r\n".repeat(500))]
    {
        let mut attacker = gateway.client();
        attacker.send(if name == "empty lines" { "" } else { "GET / HTTP/1.1\r\nHost: a\r\nx: " });
        let taken = (0..16_384).take_while(|_| attacker.try_send(&line)).count();
        assert!(taken < 16_384, "{name}: 16384 pieces were taken");
        memory.grew_at_most(8, name);
    }
    others_are_served(&gateway);
}
