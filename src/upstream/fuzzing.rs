//! What the fuzz targets in `tests/fuzz` call. They are another crate and need the insides of the codec, which nobody else outside shall
//! have.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method};

use super::{chunked, http1};
use crate::headers::ResponseHead;

/// A chunked body that was decoded to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// Without framing.
    pub body: Vec<u8>,
    /// Those that may be trailers.
    pub trailers: HeaderMap,
    /// How many bytes were behind it.
    pub left: usize,
}

/// Decodes a chunked body that comes in these pieces; nothing while it has no end.
///
/// # Errors
/// Why it is refused.
pub fn decode(pieces: &[&[u8]]) -> Result<Option<Decoded>, &'static str> {
    let mut decoder = chunked::Decoder::default();
    let (mut body, mut kept) = (Vec::new(), Vec::new());
    let mut behind: usize = pieces.iter().map(|piece| piece.len()).sum();
    for piece in pieces {
        behind -= piece.len();
        kept.extend_from_slice(piece);
        let mut bytes = Bytes::from(std::mem::take(&mut kept));
        loop {
            match decoder.decode(&mut bytes)? {
                chunked::Step::Data(data) => body.extend_from_slice(&data),
                chunked::Step::End(trailers) => {
                    let trailers = trailers.unwrap_or_default();
                    return Ok(Some(Decoded { body, trailers, left: bytes.len() + behind }));
                }
                chunked::Step::More => break,
            }
        }
        kept = bytes.to_vec();
    }
    Ok(None)
}

/// Chunks around these pieces of a body, and the trailers that `allowed` allows.
#[must_use]
pub fn encode<'p>(
    pieces: impl IntoIterator<Item = &'p [u8]>,
    trailers: &HeaderMap,
    allowed: impl Fn(&HeaderName) -> bool,
) -> Vec<u8> {
    let mut text = Vec::new();
    for piece in pieces {
        chunked::encode(Bytes::copy_from_slice(piece)).iter().for_each(|part| text.extend_from_slice(part));
    }
    text.extend_from_slice(&chunked::encode_end(trailers, allowed));
    text
}

/// The head at the front of an upstream's bytes, cleaned, and its length; nothing if it is refused or has no end.
#[must_use]
pub fn response(raw: &[u8], method: &Method) -> Option<(ResponseHead, usize)> {
    http1::parse(&Bytes::copy_from_slice(raw), method).ok().flatten()
}
