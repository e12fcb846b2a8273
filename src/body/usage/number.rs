//! A JSON number, byte by byte: its grammar, and its value as a whole number rounded up, however many digits it has.

/// A number of which some bytes have come.
#[derive(Debug, Default)]
pub(super) struct Number {
    stage: Stage,
    negative: bool,
    /// The first significant digits, which stand for `mantissa · 10^scale` before the exponent.
    mantissa: u128,
    scale: i64,
    /// Whether a digit other than zero did not fit into the mantissa.
    inexact: bool,
    exponent: i64,
    exponent_negative: bool,
}

/// What the last byte was.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    Start,
    Minus,
    /// A first digit of zero, which no other may follow.
    Zero,
    Integer,
    Point,
    Fraction,
    ExponentMark,
    ExponentSign,
    Exponent,
}

impl Number {
    /// Takes the next byte if the number can go on with it.
    pub(super) fn accept(&mut self, byte: u8) -> bool {
        use Stage::{Exponent, ExponentMark, ExponentSign, Fraction, Integer, Minus, Point, Start, Zero};
        self.stage = match (self.stage, byte) {
            (Start, b'-') => {
                self.negative = true;
                Minus
            }
            (Start | Minus, b'0') => Zero,
            (Start | Minus | Integer, b'0'..=b'9') => {
                self.digit(byte, 0);
                Integer
            }
            (Zero | Integer, b'.') => Point,
            (Point | Fraction, b'0'..=b'9') => {
                self.digit(byte, -1);
                Fraction
            }
            (Zero | Integer | Fraction, b'e' | b'E') => ExponentMark,
            (ExponentMark, b'+' | b'-') => {
                self.exponent_negative = byte == b'-';
                ExponentSign
            }
            (ExponentMark | ExponentSign | Exponent, b'0'..=b'9') => {
                self.exponent = self.exponent.saturating_mul(10).saturating_add(i64::from(byte - b'0'));
                Exponent
            }
            _ => return false,
        };
        true
    }

    /// Whether the number may end here.
    pub(super) fn is_complete(&self) -> bool {
        matches!(self.stage, Stage::Zero | Stage::Integer | Stage::Fraction | Stage::Exponent)
    }

    /// The next whole number, at most `u64::MAX`; `None` with a minus sign.
    pub(super) fn rounded_up(&self) -> Option<u64> {
        let exponent = if self.exponent_negative { -self.exponent } else { self.exponent };
        let scale = self.scale.saturating_add(exponent);
        let power = u32::try_from(scale.unsigned_abs()).ok().and_then(|power| 10_u128.checked_pow(power));
        let whole = match power {
            _ if self.mantissa == 0 => 0,
            Some(power) if scale < 0 => self.mantissa / power + u128::from(self.inexact || !self.mantissa.is_multiple_of(power)),
            Some(power) => self.mantissa.saturating_mul(power),
            // A power beyond u128 is more than any mantissa.
            None if scale < 0 => 1,
            None => u128::MAX,
        };
        (!self.negative).then(|| u64::try_from(whole).unwrap_or(u64::MAX))
    }

    /// One more digit; `shift` is what it adds to the scale: −1 behind the point.
    fn digit(&mut self, byte: u8, shift: i64) {
        let digit = u128::from(byte - b'0');
        if self.mantissa < MANTISSA_FULL {
            self.mantissa = self.mantissa * 10 + digit;
            self.scale = self.scale.saturating_add(shift);
        } else {
            self.inexact |= digit != 0;
            self.scale = self.scale.saturating_add(shift + 1);
        }
    }
}

/// From here on another digit might not fit. That leaves 38 digits, and `u64::MAX` has 20.
const MANTISSA_FULL: u128 = 10_u128.pow(37);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let zeros = "0".repeat(100_000);
        let (tiny, long) = (format!("0.{zeros}1"), format!("0.{zeros}"));
        let (undone, undone_up) = (format!("12{zeros}e-100000"), format!("12{zeros}1e-100001"));
        let rows: &[(&str, Option<u64>)] = &[
            ("0", Some(0)),
            ("7", Some(7)),
            ("12.0", Some(12)),
            ("12.5", Some(13)),
            ("12.000000000000000000000000000000000000000000001", Some(13)),
            ("1.2e3", Some(1200)),
            ("1.2E+3", Some(1200)),
            ("1234e-2", Some(13)),
            ("1200e-2", Some(12)),
            ("0.0", Some(0)),
            ("0e99999999999999999999999", Some(0)),
            ("1e-99999999999999999999999", Some(1)),
            ("1e99999999999999999999999", Some(u64::MAX)),
            ("18446744073709551614", Some(u64::MAX - 1)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551614.1", Some(u64::MAX)),
            ("18446744073709551616", Some(u64::MAX)),
            ("340282366920938463463374607431768211456", Some(u64::MAX)),
            ("340282366920938463463374607431768211456789e-39", Some(341)),
            (&tiny, Some(1)),
            (&long, Some(0)),
            (&undone, Some(12)),
            (&undone_up, Some(13)),
            ("-1", None),
            ("-0", None),
            ("-", None),
            ("", None),
            ("01", None),
            ("1.", None),
            (".5", None),
            ("1e", None),
            ("1e+", None),
            ("1.e3", None),
            ("+1", None),
            ("1-", None),
            ("0x10", None),
        ];
        for (text, expected) in rows {
            let mut number = Number::default();
            let accepted = text.bytes().all(|byte| number.accept(byte)) && number.is_complete();
            let shown: String = text.chars().take(60).collect();
            assert_eq!(accepted.then(|| number.rounded_up()).flatten(), *expected, "{shown}");
        }
    }
}
