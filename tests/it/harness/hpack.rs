//! Just enough HPACK: literals out, and in whatever a peer sends that may not use the dynamic table.
//!
//! The tests announce a dynamic table of size 0, so references beyond the static table cannot occur.

/// Encodes fields as literals that are never indexed and never Huffman-coded: any byte can be sent.
pub(crate) fn encode(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        string(name.as_bytes(), &mut block);
        string(value.as_bytes(), &mut block);
    }
    block
}

fn string(bytes: &[u8], block: &mut Vec<u8>) {
    let mut rest = bytes.len();
    if rest < 127 {
        block.push(u8::try_from(rest).expect("checked"));
    } else {
        block.push(127);
        rest -= 127;
        while rest >= 128 {
            block.push(u8::try_from(rest % 128 + 128).expect("at most 255"));
            rest /= 128;
        }
        block.push(u8::try_from(rest).expect("below 128"));
    }
    block.extend_from_slice(bytes);
}

/// Decodes a complete header block; panics on what the tests' settings rule out.
pub(crate) fn decode(mut block: &[u8]) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    while let Some(&first) = block.first() {
        if first & 0x80 != 0 {
            let index = integer(&mut block, 7);
            let (name, value) = STATIC[index - 1];
            fields.push((name.to_owned(), value.to_owned()));
        } else if first & 0xe0 == 0x20 {
            integer(&mut block, 5);
        } else {
            let index = integer(&mut block, if first & 0x40 == 0 { 4 } else { 6 });
            let name = if index == 0 { text(&mut block) } else { STATIC[index - 1].0.to_owned() };
            fields.push((name, text(&mut block)));
        }
    }
    fields
}

fn integer(block: &mut &[u8], prefix: u32) -> usize {
    let max = (1_usize << prefix) - 1;
    let mut value = usize::from(block[0]) & max;
    *block = &block[1..];
    if value == max {
        for shift in (0..).step_by(7) {
            let byte = block[0];
            *block = &block[1..];
            value += usize::from(byte & 127) << shift;
            if byte < 128 {
                break;
            }
        }
    }
    value
}

fn text(block: &mut &[u8]) -> String {
    let coded = block[0] & 0x80 != 0;
    let length = integer(block, 7);
    let (bytes, rest) = block.split_at(length);
    *block = rest;
    if coded { huffman(bytes) } else { String::from_utf8_lossy(bytes).into_owned() }
}

/// HPACK's code is canonical: codes of one length follow each other in the order of their symbols.
fn huffman(bytes: &[u8]) -> String {
    let mut out = String::new();
    let (mut code, mut length) = (0_u32, 0_u32);
    for bit in bytes.iter().flat_map(|byte| (0..8).rev().map(move |i| u32::from(byte >> i & 1))) {
        (code, length) = (code << 1 | bit, length + 1);
        let mut first = 0;
        for (symbols, bits) in CODES.iter().zip(5..) {
            if bits == length {
                if let Some(symbol) = code.checked_sub(first).and_then(|at| symbols.chars().nth(at as usize)) {
                    out.push(symbol);
                    (code, length) = (0, 0);
                }
                break;
            }
            first = (first + u32::try_from(symbols.chars().count()).expect("small")) << 1;
        }
    }
    out
}

/// Symbols by length of their code, from 5 bits: the printable part of RFC 7541, Appendix B.
const CODES: [&str; 11] = [
    "012aceiost",
    " %-./3456789=A_bdfghlmnpru",
    ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    "&*,;XZ",
    "",
    "!\"()?",
    "'+|",
    "#>",
    "\0$@[]~",
    "^}",
    "<`{",
];

/// RFC 7541, Appendix A.
#[rustfmt::skip]
const STATIC: [(&str, &str); 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""), ("cache-control", ""),
    ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""), ("date", ""), ("etag", ""),
    ("expect", ""), ("expires", ""), ("from", ""), ("host", ""), ("if-match", ""), ("if-modified-since", ""),
    ("if-none-match", ""), ("if-range", ""), ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""),
    ("location", ""), ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""), ("via", ""),
    ("www-authenticate", ""),
];

#[test]
fn the_examples_of_rfc_7541_decode() {
    let block = [0x48, 0x82, 0x64, 0x02, 0x58, 0x85, 0xae, 0xc3, 0x77, 0x1a, 0x4b];
    assert_eq!(decode(&block), [(":status".into(), "302".into()), ("cache-control".into(), "private".into())]);
    let url = [0x6e, 0x91, 0x9d, 0x29, 0xad, 0x17, 0x18, 0x63, 0xc7, 0x8f, 0x0b, 0x97, 0xc8, 0xe9, 0xae, 0x82, 0xae, 0x43, 0xd3];
    assert_eq!(decode(&url), [("location".into(), "https://www.example.com".into())]);
}
