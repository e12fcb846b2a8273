//! RFC 9113 §4, §5.5, §6.1, §6.2, §6.10: frames, their sizes, and header blocks in pieces.

use super::*;

#[rustfmt::skip]
const FRAMES: &[Row] = &[
    ("a frame of unknown type is ignored", |c| c.frame(0xfe, 0xff, 0, &[0; 64]), Fine),
    ("on a stream, too", |c| { ask(c, 1, "/x"); c.frame(0xfe, 0xff, 1, &[0; 64]); }, Fine),
    ("undefined flags are ignored", |c| c.frame(kind::PING, 0xfe, 0, &[7; 8]), Fine),
    ("the reserved bit is ignored", |c| c.frame(kind::PING, 0, 1 << 31, &[7; 8]), Fine),
    ("DATA of 2^14 octets", |c| { begin(c, 1, "/x"); c.frame(kind::DATA, flag::END_STREAM, 1, &[0; 1 << 14]); answered(c, 1); }, Fine),
    ("DATA larger than announced", |c| { begin(c, 1, "/x"); c.frame(kind::DATA, flag::END_STREAM, 1, &[0; (1 << 14) + 1]); }, Stream(1, SIZE)),
    ("HEADERS larger than announced", |c| c.frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &[0; (1 << 14) + 1]), Connection(SIZE)),
    ("SETTINGS larger than announced", |c| c.frame(kind::SETTINGS, 0, 0, &[0; (1 << 14) + 2]), Connection(SIZE)),
    ("a frame that says 16 MiB", |c| c.write(&frame_head(0xff_ffff, kind::DATA, 0, 1)), Connection(SIZE)),
];

#[rustfmt::skip]
const DATA: &[Row] = &[
    ("DATA on stream 0", |c| c.frame(kind::DATA, 0, 0, b"x"), Connection(PROTOCOL)),
    ("DATA with padding", |c| { begin(c, 1, "/x"); c.frame(kind::DATA, flag::END_STREAM | flag::PADDED, 1, b"\x03abc\0\0\0"); answered(c, 1); }, Fine),
    ("DATA of nothing but padding", |c| { begin(c, 1, "/x"); c.frame(kind::DATA, flag::END_STREAM | flag::PADDED, 1, b"\x02\0\0"); answered(c, 1); }, Fine),
    ("padding as long as the payload", |c| { begin(c, 1, "/x"); c.frame(kind::DATA, flag::END_STREAM | flag::PADDED, 1, b"\x04abc"); }, Connection(PROTOCOL)),
    ("padding longer than the payload", |c| { begin(c, 1, "/x"); c.frame(kind::DATA, flag::END_STREAM | flag::PADDED, 1, b"\xffabc"); }, Connection(PROTOCOL)),
    ("padded, and not even a length", |c| { begin(c, 1, "/x"); c.frame(kind::DATA, flag::END_STREAM | flag::PADDED, 1, b""); }, Connection(FORM)),
];

#[rustfmt::skip]
const HEADERS: &[Row] = &[
    ("HEADERS on stream 0", |c| c.frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 0, &get()), Connection(PROTOCOL)),
    ("HEADERS with padding", |c| { c.frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM | flag::PADDED, 1, &[&[2][..], &get(), &[0, 0]].concat()); answered(c, 1); }, Fine),
    ("HEADERS with a priority", |c| { c.frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM | flag::PRIORITY, 1, &[&[0, 0, 0, 0, 16][..], &get()].concat()); answered(c, 1); }, Fine),
    ("padding as long as the payload", |c| c.frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM | flag::PADDED, 1, b"\x03\x82\x86"), Connection(PROTOCOL)),
    ("padding longer than the payload", |c| c.frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM | flag::PADDED, 1, b"\xff\x82\x86"), Connection(PROTOCOL)),
    ("half a priority", |c| c.frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM | flag::PRIORITY, 1, b"\0\0\0"), Connection(FORM)),
    ("an empty block", |c| c.frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, b""), Malformed(1)),
];

/// The header block of a GET, whose second part is still to come.
fn first_half(client: &mut H2) -> Vec<u8> {
    let block = get();
    client.frame(kind::HEADERS, flag::END_STREAM, 1, &block[..9]);
    block[9..].to_vec()
}

#[rustfmt::skip]
const BLOCKS: &[Row] = &[
    ("a block in two", |c| { let rest = first_half(c); c.frame(kind::CONTINUATION, flag::END_HEADERS, 1, &rest); answered(c, 1); }, Fine),
    ("a block in four, cut anywhere, one of them empty", |c| {
        let rest = first_half(c);
        for piece in [&rest[..1], &[], &rest[1..5]] { c.frame(kind::CONTINUATION, 0, 1, piece); }
        c.frame(kind::CONTINUATION, flag::END_HEADERS, 1, &rest[5..]);
        answered(c, 1);
    }, Fine),
    ("PRIORITY within a block", |c| { first_half(c); c.frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 0, 1]); }, Connection(PROTOCOL)),
    ("PING within a block", |c| { first_half(c); c.frame(kind::PING, 0, 0, &[0; 8]); }, Connection(PROTOCOL)),
    ("SETTINGS within a block", |c| { first_half(c); c.frame(kind::SETTINGS, 0, 0, &[]); }, Connection(PROTOCOL)),
    ("DATA within a block", |c| { first_half(c); c.frame(kind::DATA, flag::END_STREAM, 1, b"x"); }, Connection(PROTOCOL)),
    ("HEADERS of the same stream within a block", |c| { first_half(c); ask(c, 1, "/x"); }, Connection(PROTOCOL)),
    ("HEADERS of another stream within a block", |c| { first_half(c); ask(c, 3, "/x"); }, Connection(PROTOCOL)),
    ("CONTINUATION of another stream", |c| { let rest = first_half(c); c.frame(kind::CONTINUATION, flag::END_HEADERS, 3, &rest); }, Connection(PROTOCOL)),
    ("CONTINUATION on stream 0", |c| { let rest = first_half(c); c.frame(kind::CONTINUATION, flag::END_HEADERS, 0, &rest); }, Connection(PROTOCOL)),
    ("a frame of unknown type within a block", |c| { first_half(c); c.frame(0xfe, 0, 0, &[0; 8]); }, Connection(PROTOCOL)),
    ("CONTINUATION behind a whole block", |c| { begin(c, 1, "/x"); c.frame(kind::CONTINUATION, flag::END_HEADERS, 1, &get()); }, Connection(PROTOCOL)),
    ("CONTINUATION behind CONTINUATION's end", |c| {
        let rest = first_half(c);
        c.frame(kind::CONTINUATION, flag::END_HEADERS, 1, &rest);
        c.frame(kind::CONTINUATION, flag::END_HEADERS, 1, b"");
    }, Connection(PROTOCOL)),
    ("CONTINUATION behind DATA", |c| { begin(c, 1, "/x"); c.frame(kind::DATA, 0, 1, b"x"); c.frame(kind::CONTINUATION, flag::END_HEADERS, 1, b""); }, Connection(PROTOCOL)),
    ("CONTINUATION first", |c| c.frame(kind::CONTINUATION, flag::END_HEADERS, 1, &get()), Connection(PROTOCOL)),
    ("PUSH_PROMISE from a client", |c| c.frame(kind::PUSH_PROMISE, flag::END_HEADERS, 1, &[&[0, 0, 0, 2][..], &get()].concat()), Connection(PROTOCOL)),
];

#[test]
fn frames_are_as_large_as_was_agreed() {
    run("frames", FRAMES);
}

#[test]
fn data_belongs_to_a_stream_and_padding_fits() {
    run("DATA", DATA);
}

#[test]
fn headers_belong_to_a_stream_and_padding_fits() {
    run("HEADERS", HEADERS);
}

#[test]
fn nothing_comes_between_the_pieces_of_a_header_block() {
    run("header blocks", BLOCKS);
}
