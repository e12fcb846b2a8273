//! RFC 9113 §5.1, §5.1.1, §5.1.2, §5.3, §6.3, §6.4: what may be sent on a stream, and when.

use super::*;

const CANCEL: [u8; 4] = [0, 0, 0, 8];

#[rustfmt::skip]
const IDLE: &[Row] = &[
    ("DATA", |c| c.frame(kind::DATA, flag::END_STREAM, 1, b"x"), Connection(PROTOCOL)),
    ("RST_STREAM", |c| c.frame(kind::RST_STREAM, 0, 1, &CANCEL), Connection(PROTOCOL)),
    ("WINDOW_UPDATE", |c| c.frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 100]), Connection(PROTOCOL)),
    ("PRIORITY", |c| c.frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 0, 16]), Fine),
    ("HEADERS on an even stream", |c| ask(c, 2, "/x"), Connection(PROTOCOL)),
    ("DATA on an even stream", |c| c.frame(kind::DATA, flag::END_STREAM, 2, b"x"), Connection(PROTOCOL)),
    ("a stream below the last", |c| { ask(c, 5, "/x"); ask(c, 3, "/x"); }, Connection(CLOSED)),
    ("streams with gaps", |c| { ask(c, 5, "/x"); ask(c, 77, "/x"); answered(c, 5); answered(c, 77); }, Fine),
];

#[rustfmt::skip]
const HALF_CLOSED: &[Row] = &[
    ("DATA", |c| { ask(c, 1, "/stall"); c.frame(kind::DATA, flag::END_STREAM, 1, b"x"); }, Stream(1, CLOSED)),
    ("HEADERS", |c| { ask(c, 1, "/stall"); ask(c, 1, "/x"); }, Stream(1, CLOSED)),
    ("CONTINUATION", |c| { ask(c, 1, "/stall"); c.frame(kind::CONTINUATION, flag::END_HEADERS, 1, &get()); }, Connection(CLOSED)),
    ("WINDOW_UPDATE", |c| { ask(c, 1, "/stall"); c.frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 100]); }, Fine),
    ("PRIORITY", |c| { ask(c, 1, "/stall"); c.frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 0, 16]); }, Fine),
    ("RST_STREAM", |c| { ask(c, 1, "/stall"); c.frame(kind::RST_STREAM, 0, 1, &CANCEL); }, Fine),
];

#[rustfmt::skip]
const CLOSED_BY_US: &[Row] = &[
    ("DATA", |c| { begin(c, 1, "/stall"); c.cancel(1); c.frame(kind::DATA, flag::END_STREAM, 1, b"x"); }, Stream(1, CLOSED)),
    ("HEADERS", |c| { begin(c, 1, "/stall"); c.cancel(1); ask(c, 1, "/x"); }, Stream(1, CLOSED)),
    ("CONTINUATION", |c| { begin(c, 1, "/stall"); c.cancel(1); c.frame(kind::CONTINUATION, flag::END_HEADERS, 1, b""); }, Connection(CLOSED)),
    ("PRIORITY", |c| { begin(c, 1, "/stall"); c.cancel(1); c.frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 0, 16]); }, Fine),
    ("another RST_STREAM", |c| { begin(c, 1, "/stall"); c.cancel(1); c.cancel(1); }, Fine),
    ("WINDOW_UPDATE", |c| { begin(c, 1, "/stall"); c.cancel(1); c.frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 100]); }, Fine),
];

#[rustfmt::skip]
const ANSWERED: &[Row] = &[
    ("DATA", |c| { ask(c, 1, "/x"); answered(c, 1); c.frame(kind::DATA, flag::END_STREAM, 1, b"x"); }, Stream(1, CLOSED)),
    ("HEADERS", |c| { ask(c, 1, "/x"); answered(c, 1); ask(c, 1, "/x"); }, Connection(CLOSED)),
    ("CONTINUATION", |c| { ask(c, 1, "/x"); answered(c, 1); c.frame(kind::CONTINUATION, flag::END_HEADERS, 1, b""); }, Connection(CLOSED)),
    ("PRIORITY", |c| { ask(c, 1, "/x"); answered(c, 1); c.frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 0, 16]); }, Fine),
    ("RST_STREAM", |c| { ask(c, 1, "/x"); answered(c, 1); c.cancel(1); }, Fine),
    ("WINDOW_UPDATE", |c| { ask(c, 1, "/x"); answered(c, 1); c.frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 100]); }, Fine),
];

/// RFC 9113 has done away with priorities, but not with the frame. That a stream must not depend on itself is RFC 7540's; both
/// readings are right, so these rows are in a test of their own.
#[rustfmt::skip]
const PRIORITY_AND_RESET: &[Row] = &[
    ("PRIORITY on stream 0", |c| c.frame(kind::PRIORITY, 0, 0, &[0, 0, 0, 0, 16]), Connection(PROTOCOL)),
    ("PRIORITY of 4 octets", |c| { begin(c, 1, "/x"); c.frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 16]); }, Stream(1, FORM)),
    ("PRIORITY of 6 octets", |c| { begin(c, 1, "/x"); c.frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 0, 16, 0]); }, Stream(1, FORM)),
    ("RST_STREAM on stream 0", |c| c.frame(kind::RST_STREAM, 0, 0, &CANCEL), Connection(PROTOCOL)),
    ("RST_STREAM of 3 octets", |c| { begin(c, 1, "/x"); c.frame(kind::RST_STREAM, 0, 1, &[0, 0, 8]); }, Connection(FORM)),
    ("RST_STREAM of 5 octets", |c| { begin(c, 1, "/x"); c.frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 0, 8]); }, Connection(FORM)),
    ("RST_STREAM with an unknown code", |c| { begin(c, 1, "/stall"); c.frame(kind::RST_STREAM, 0, 1, &[0xff; 4]); }, Fine),
];

#[test]
fn streams_that_have_not_begun() {
    run("idle", IDLE);
}

#[test]
fn streams_that_the_client_has_ended() {
    run("half-closed", HALF_CLOSED);
}

#[test]
fn streams_that_the_client_has_reset() {
    run("reset", CLOSED_BY_US);
}

#[test]
fn streams_that_are_answered() {
    run("closed", ANSWERED);
}

#[test]
fn priorities_and_resets_have_their_form() {
    run("PRIORITY and RST_STREAM", PRIORITY_AND_RESET);
}

#[test]
fn a_stream_that_depends_on_itself_is_an_error_or_ignored() {
    let bench = Bench::new();
    let scripts: [fn(&mut H2); 2] = [
        |client| {
            let block = [&[0, 0, 0, 1, 16][..], &get()].concat();
            client.frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM | flag::PRIORITY, 1, &block);
        },
        |client| {
            begin(client, 1, "/x");
            client.frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 1, 16]);
            client.data(1, b"x", true);
        },
    ];
    for (_, dial) in &bench.ways {
        for script in scripts {
            let mut client = bench.connect(dial.as_ref());
            script(&mut client);
            let reply = client.receive(1);
            let refused = reply.reset.or(reply.goaway) == Some(code::PROTOCOL_ERROR);
            assert!(refused || reply.outcome() == "200", "{reply:?}");
        }
    }
}

/// H2-9: more streams at once than were announced.
#[test]
fn streams_beyond_the_limit_are_refused_and_the_others_live() {
    let bench = Bench::new();
    for (way, dial) in &bench.ways {
        let mut client = bench.silent(dial.as_ref());
        client.greet(1 << 20);
        client.pump(|client| client.frames.iter().any(|frame| frame.kind == kind::SETTINGS && frame.flags & flag::ACK != 0));
        let settings =
            client.frames.iter().find(|frame| frame.kind == kind::SETTINGS && frame.flags == 0).unwrap().payload.clone();
        let limit = settings.chunks_exact(6).find(|entry| entry[..2] == [0, 3]).expect("a limit is announced");
        let limit = u32::from_be_bytes(limit[2..].try_into().unwrap());
        assert!((100..=1_000).contains(&limit), "{way}: {limit} streams");
        let before = bench.origin.lines().iter().filter(|line| line.contains("/stall")).count();
        for n in 0..limit {
            ask(&mut client, 2 * n + 1, "/stall");
        }
        let one_more = 2 * limit + 1;
        ask(&mut client, one_more, "/x");
        client.pump(|client| client.reset_of(one_more).is_some() || client.last_word().is_some());
        let reset = client.reset_of(one_more);
        assert!(
            matches!(reset, Some(code::REFUSED_STREAM | code::PROTOCOL_ERROR)),
            "{way}: {reset:?}, GOAWAY {:?}",
            client.last_word()
        );
        let stalled = usize::try_from(limit).unwrap();
        crate::harness::until("the others are being served", || {
            bench.origin.lines().iter().filter(|line| line.contains("/stall")).count() - before == stalled
        });
        client.cancel(1);
        assert_eq!(serves_on(&mut client), "", "{way}: one less is one more");
    }
}
