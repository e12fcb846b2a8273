//! RFC 9113 §6.5, §6.7, §6.8: SETTINGS, PING and GOAWAY.

use super::*;
use crate::harness::setting;

fn settings(client: &mut H2, id: u16, value: u32) {
    client.frame(kind::SETTINGS, 0, 0, &setting(id, value));
}

#[rustfmt::skip]
const SETTINGS: &[Row] = &[
    ("SETTINGS on a stream", |c| c.frame(kind::SETTINGS, 0, 1, &setting(3, 100)), Connection(PROTOCOL)),
    ("SETTINGS of 3 octets", |c| c.frame(kind::SETTINGS, 0, 0, &[0; 3]), Connection(FORM)),
    ("SETTINGS of 7 octets", |c| c.frame(kind::SETTINGS, 0, 0, &[0; 7]), Connection(FORM)),
    ("an acknowledgement with a payload", |c| c.frame(kind::SETTINGS, flag::ACK, 0, &setting(3, 100)), Connection(FORM)),
    ("ENABLE_PUSH of 0 and 1", |c| { settings(c, 2, 0); settings(c, 2, 1); }, Fine),
    ("ENABLE_PUSH of 2", |c| settings(c, 2, 2), Connection(PROTOCOL)),
    ("INITIAL_WINDOW_SIZE of 2^31 - 1", |c| settings(c, 4, (1 << 31) - 1), Fine),
    ("INITIAL_WINDOW_SIZE of 2^31", |c| settings(c, 4, 1 << 31), Connection(&[code::FLOW_CONTROL_ERROR, code::PROTOCOL_ERROR])),
    ("MAX_FRAME_SIZE of 2^14", |c| settings(c, 5, 1 << 14), Fine),
    ("MAX_FRAME_SIZE below 2^14", |c| settings(c, 5, (1 << 14) - 1), Connection(PROTOCOL)),
    ("MAX_FRAME_SIZE of 2^24 - 1", |c| settings(c, 5, (1 << 24) - 1), Fine),
    ("MAX_FRAME_SIZE of 2^24", |c| settings(c, 5, 1 << 24), Connection(PROTOCOL)),
    ("HEADER_TABLE_SIZE of 2^32 - 1", |c| settings(c, 1, u32::MAX), Fine),
    ("MAX_CONCURRENT_STREAMS of 0", |c| settings(c, 3, 0), Fine),
    ("MAX_HEADER_LIST_SIZE of 2^32 - 1", |c| settings(c, 6, u32::MAX), Fine),
    ("an unknown setting", |c| settings(c, 0xfafa, 7), Fine),
    ("one setting many times, the last counts", |c| {
        let many: Vec<u8> = (0..100).flat_map(|n| setting(4, n * 1_000)).collect();
        c.frame(kind::SETTINGS, 0, 0, &many);
    }, Fine),
    ("no settings at all", |c| c.frame(kind::SETTINGS, 0, 0, &[]), Fine),
];

#[rustfmt::skip]
const PINGS: &[Row] = &[
    ("PING on a stream", |c| c.frame(kind::PING, 0, 1, &[0; 8]), Connection(PROTOCOL)),
    ("PING of 7 octets", |c| c.frame(kind::PING, 0, 0, &[0; 7]), Connection(FORM)),
    ("PING of 9 octets", |c| c.frame(kind::PING, 0, 0, &[0; 9]), Connection(FORM)),
    ("an acknowledgement of no PING", |c| c.frame(kind::PING, flag::ACK, 0, &[9; 8]), Fine),
    ("GOAWAY on a stream", |c| c.frame(kind::GOAWAY, 0, 1, &[0; 8]), Connection(PROTOCOL)),
];

#[test]
fn settings_have_their_form_and_their_values() {
    run("SETTINGS", SETTINGS);
}

#[test]
fn pings_and_goaways_have_their_form() {
    run("PING and GOAWAY", PINGS);
}

#[test]
fn settings_and_pings_are_acknowledged_each_and_acknowledgements_are_not() {
    let bench = Bench::new();
    for (way, dial) in &bench.ways {
        let mut client = bench.connect(dial.as_ref());
        client.frame(kind::PING, flag::ACK, 0, b"unasked!");
        settings(&mut client, 3, 100);
        settings(&mut client, 3, 101);
        client.frame(kind::PING, 0, 0, b"the last");
        let acknowledged =
            |client: &H2, wanted| client.frames.iter().filter(|frame| frame.kind == wanted && frame.flags == flag::ACK).count();
        client.pump(|client| acknowledged(client, kind::PING) == 1 && acknowledged(client, kind::SETTINGS) == 2);
        let pongs: Vec<_> = client.frames.iter().filter(|frame| frame.kind == kind::PING && frame.flags == flag::ACK).collect();
        assert_eq!(pongs.iter().map(|frame| frame.payload.as_slice()).collect::<Vec<_>>(), [b"the last"], "{way}");
        assert_eq!(acknowledged(&client, kind::SETTINGS), 2, "{way}");
        assert_eq!(serves_on(&mut client), "", "{way}");
    }
}
