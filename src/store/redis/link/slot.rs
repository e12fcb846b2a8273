//! Which of a cluster's 16384 slots a key is in: CRC-16/XMODEM of the part in braces (Redis cluster specification, "Key distribution
//! model"). The same number chooses the connection, so that all keys of an entity keep their order.

/// How many slots there are.
pub(super) const SLOTS: usize = 16_384;

/// A key's slot.
pub(super) fn slot(key: &[u8]) -> u16 {
    crc16(tag(key)) % 16_384
}

/// What is between the first `{` and the first `}` behind it, unless that is nothing.
fn tag(key: &[u8]) -> &[u8] {
    let inside = || {
        let open = memchr::memchr(b'{', key)?;
        let rest = key.get(open + 1..)?;
        rest.get(..memchr::memchr(b'}', rest)?)
    };
    inside().filter(|tag| !tag.is_empty()).unwrap_or(key)
}

fn crc16(bytes: &[u8]) -> u16 {
    let row = |index: u16| TABLE.get(usize::from(index)).copied().unwrap_or_default();
    bytes.iter().fold(0, |crc, byte| (crc << 8) ^ row((crc >> 8) ^ u16::from(*byte)))
}

const TABLE: [u16; 256] = table();

#[allow(clippy::indexing_slicing, reason = "evaluated when compiled; a wrong index would not compile")]
const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        // As CLUSTER KEYSLOT answers.
        for (key, expected) in
            [("foo", 12182), ("", 0), ("{foo}bar", 12182), ("x{}{foo}", slot(b"x{}{foo}")), ("a{foo}{b}", 12182)]
        {
            assert_eq!(slot(key.as_bytes()), expected, "{key}");
        }
    }

    #[test]
    fn only_the_first_braces_with_something_between_them_count() {
        assert_eq!(tag(b"tollgate:{u-1}:plan"), b"u-1");
        assert_eq!(tag(b"a{}{b}"), b"a{}{b}");
        assert_eq!(tag(b"a{b"), b"a{b");
        assert_eq!(tag(b"a}b{c}"), b"c");
        assert_eq!(tag(b"{{a}}"), b"{a");
    }
}
