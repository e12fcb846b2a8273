//! RFC 7541, and RFC 9113 §4.3: header blocks that can't be decompressed end the connection, because both tables would part ways.

use super::*;

/// A GET whose block has these bytes in front of its fields, or behind them.
fn around(client: &mut H2, before: &[u8], behind: &[u8]) {
    client.frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &[before, &get(), behind].concat());
}

#[rustfmt::skip]
const BLOCKS: &[Row] = &[
    ("index 0", |c| around(c, &[], &[0x80]), Connection(COMPRESSION)),
    ("an index behind an empty dynamic table", |c| around(c, &[], &[0xbe]), Connection(COMPRESSION)),
    ("an index far beyond", |c| around(c, &[], &[0xff, 0xff, 0xff, 0x03]), Connection(COMPRESSION)),
    ("an index that overflows", |c| around(c, &[], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]), Connection(COMPRESSION)),
    ("a name's index beyond the table", |c| around(c, &[], &[0x7f, 0x7f, 1, b'y']), Connection(COMPRESSION)),
    ("Huffman code with EOS", |c| around(c, &[], &[0x00, 1, b'y', 0x84, 0xff, 0xff, 0xff, 0xff]), Connection(COMPRESSION)),
    ("Huffman code with 8 bits of padding", |c| around(c, &[], &[0x00, 1, b'y', 0x82, 0x1f, 0xff]), Connection(COMPRESSION)),
    ("Huffman code padded with zeros", |c| around(c, &[], &[0x00, 1, b'y', 0x81, 0x18]), Connection(COMPRESSION)),
    ("a table size beyond what was announced", |c| around(c, &[0x3f, 0xe2, 0x1f], &[]), Connection(COMPRESSION)),
    ("a table size that overflows", |c| around(c, &[0x3f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], &[]), Connection(COMPRESSION)),
    ("a table size behind the fields", |c| around(c, &[], &[0x20]), Connection(COMPRESSION)),
    ("a table size of 4096, then of 0", |c| { around(c, &[0x3f, 0xe1, 0x1f, 0x20], &[]); answered(c, 1); }, Fine),
    ("a value longer than the block", |c| around(c, &[], &[0x00, 1, b'y', 100, b'z']), Connection(COMPRESSION)),
    ("a name longer than the block", |c| around(c, &[], &[0x00, 100, b'y']), Connection(COMPRESSION)),
    ("half an integer", |c| around(c, &[], &[0xff, 0x80]), Connection(COMPRESSION)),
    ("a length that overflows", |c| around(c, &[], &[0x00, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]), Connection(COMPRESSION)),
    ("garbage in trailers", |c| { begin(c, 1, "/x"); c.frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &[0x80]); }, Connection(COMPRESSION)),
    ("garbage in CONTINUATION", |c| { c.frame(kind::HEADERS, flag::END_STREAM, 1, &get()); c.frame(kind::CONTINUATION, flag::END_HEADERS, 1, &[0x80]); }, Connection(COMPRESSION)),
];

#[test]
fn blocks_that_can_not_be_read_end_the_connection() {
    run("HPACK", BLOCKS);
}

/// `x-mark: VALUE` with incremental indexing: it becomes entry 62.
fn marked(value: &[u8]) -> Vec<u8> {
    [&[0x40, 6][..], b"x-mark", &[u8::try_from(value.len()).unwrap()], value].concat()
}

#[test]
fn the_dynamic_table_outlives_requests_and_refusals() {
    let bench = Bench::new();
    for (way, dial) in &bench.ways {
        bench.origin.forget();
        let mut client = bench.connect(dial.as_ref());
        // The entry is made by a request that is refused as malformed, and must be there all the same.
        let refused =
            [header_block(&[(":method", "GET"), (":scheme", "http"), (":authority", "a b"), (":path", "/bad")]), marked(b"one")];
        client.frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &refused.concat());
        assert!(["400", "rst"].contains(&client.receive(1).outcome().as_str()), "{way}");
        // Another one by a request whose fields are too many to be accepted (RFC 9113 §10.5.1).
        let large = [
            get(),
            header_block(&[("x-large", &"x".repeat(15_000)), ("x-larger", &"x".repeat(15_000))]),
            header_block(&[("x-most", &"x".repeat(9_000))]),
            marked(b"two"),
        ]
        .concat();
        let mut parts = large.chunks(16 << 10).peekable();
        client.frame(kind::HEADERS, flag::END_STREAM, 3, parts.next().unwrap());
        while let Some(part) = parts.next() {
            client.frame(kind::CONTINUATION, if parts.peek().is_none() { flag::END_HEADERS } else { 0 }, 3, part);
        }
        let outcome = client.receive(3).outcome();
        assert!(["431", "rst"].contains(&outcome.as_str()), "{way}: {outcome}");
        client.frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 5, &[get(), vec![0xbe, 0xbf]].concat());
        assert_eq!(client.receive(5).outcome(), "200", "{way}");
        assert_eq!(bench.origin.wait(1).all("x-mark"), ["two", "one"], "{way}");
    }
}

/// HF-5: a large entry, referred to a thousand times, is as large as what it stands for.
#[test]
fn a_small_block_that_unfolds_to_a_large_head_is_refused_by_what_it_unfolds_to() {
    let bench = Bench::new();
    bench.gateway.get("/warm-up");
    for (way, dial) in &bench.ways {
        bench.origin.forget();
        let before = bench.gateway.rss();
        let mut client = bench.connect(dial.as_ref());
        let bomb =
            [get(), [&[0x40, 6][..], b"x-bomb", &[0x7f, 0xa1, 0x1e], &[b'x'; 4_000]].concat(), vec![0xbe; 12_000]].concat();
        client.frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &bomb);
        let outcome = client.receive(1).outcome();
        assert!(["431", "rst", "goaway", "closed"].contains(&outcome.as_str()), "{way}: {outcome}");
        let growth = bench.gateway.rss().saturating_sub(before);
        assert!(growth < 4 << 20, "{way}: memory grew by {} KiB", growth >> 10);
        assert!(crate::harness::reached(&bench.gateway, &bench.origin).is_empty(), "{way}");
    }
}

/// The table is resized for every request, and filled.
#[test]
fn a_table_that_is_resized_all_the_time_costs_nothing() {
    let bench = Bench::new();
    bench.gateway.get("/warm-up");
    for (way, dial) in &bench.ways {
        let mut client = bench.connect(dial.as_ref());
        let before = bench.gateway.rss();
        for n in 0..500_u32 {
            let resized: &[u8] = if n % 2 == 0 { &[0x20, 0x3f, 0xe1, 0x1f] } else { &[0x3f, 0xe1, 0x1f] };
            let block = [resized, &get(), &marked(&[b'x'; 100])].concat();
            client.frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 2 * n + 1, &block);
            assert_eq!(client.receive(2 * n + 1).outcome(), "200", "{way}: request {n}");
        }
        let growth = bench.gateway.rss().saturating_sub(before);
        assert!(growth < 4 << 20, "{way}: memory grew by {} KiB", growth >> 10);
    }
}
