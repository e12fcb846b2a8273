//! A chunked body: the same however it is cut, and written anew in one way.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::upstream::fuzzing::{Decoded, decode, encode};
use tollgate_fuzz::chunks;

// The first four bytes say where it is cut.
fuzz_target!(|bytes: &[u8]| {
    let Some((cuts, text)) = bytes.split_first_chunk::<4>() else { return };
    let whole = decode(&[text]);
    assert_eq!(decode(&cut(text, *cuts)), whole);
    assert_eq!(decode(&text.chunks(1).collect::<Vec<_>>()), whole, "byte by byte");
    if let Ok(Some(decoded)) = whole {
        check_written(&decoded, usize::from(cuts[0]) + 1);
    }
});

fn cut(text: &[u8], cuts: [u8; 4]) -> Vec<&[u8]> {
    let mut rest = text;
    let mut pieces: Vec<_> = cuts
        .iter()
        .map(|cut| {
            let (piece, behind) = rest.split_at(usize::from(*cut).min(rest.len()));
            rest = behind;
            piece
        })
        .collect();
    pieces.push(rest);
    pieces
}

fn check_written(decoded: &Decoded, size: usize) {
    let written = encode(decoded.body.chunks(size), &decoded.trailers, |_| true);
    let (body, trailers) = chunks(&written);
    assert_eq!(body, decoded.body);
    assert_eq!(trailers.len(), decoded.trailers.len());
    let again = decode(&[&written]).expect("what is written is valid").expect("and complete");
    assert_eq!(again, Decoded { left: 0, ..decoded.clone() });
}
