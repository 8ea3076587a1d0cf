//! Numbers as C reads them: `strtoull` with base 0 and `strtod`, on the start of a text.
//!
//! Configuration files mean by `010`, `1e3` or `-1` what the reference makes of them, not what a
//! Rust parser would.

/// Reads an unsigned integer from the start of `text`: decimal, `0x` hexadecimal, leading-`0`
/// octal. Returns it with the number of bytes used, 0 if there is no number.
///
/// A minus sign wraps around and a number too large is the largest, as in C.
///
/// Example: `7.9` is 7 with 1 byte used, `010` is 8, `-1` is 2^64−1.
#[must_use]
pub fn integer_prefix(text: &str) -> (u64, usize) {
    let (negative, sign_len) = sign(text);
    let digits = &text[sign_len..];
    let (radix, prefix_len) = radix_of(digits);
    let digits = &digits[prefix_len..];
    let used = digits
        .bytes()
        .take_while(|b| char::from(*b).is_digit(radix))
        .count();
    if used == 0 {
        // `0x` without a digit behind it is the number 0 and the letter x.
        return if prefix_len == 2 {
            (0, sign_len + 1)
        } else {
            (0, 0)
        };
    }
    let value = u64::from_str_radix(&digits[..used], radix);
    let value = match value {
        Ok(v) if negative => v.wrapping_neg(),
        Ok(v) => v,
        Err(_) => u64::MAX,
    };
    (value, sign_len + prefix_len + used)
}

/// Reads a floating-point number from the start of `text`, as `strtod` does in the C locale.
/// Returns it with the number of bytes used, 0 if there is no number.
#[must_use]
pub fn real_prefix(text: &str) -> (f64, usize) {
    let (negative, sign_len) = sign(text);
    let body = &text[sign_len..];
    let (magnitude, used) = match named_real(body).or_else(|| hex_real(body)) {
        Some(found) => found,
        None => decimal_real(body),
    };
    if used == 0 {
        return (0.0, 0);
    }
    (
        if negative { -magnitude } else { magnitude },
        sign_len + used,
    )
}

/// Whether the whole of `text` is an integer or a real number.
#[must_use]
pub fn is_number(text: &str) -> bool {
    !text.is_empty() && (integer_prefix(text).1 == text.len() || real_prefix(text).1 == text.len())
}

fn sign(text: &str) -> (bool, usize) {
    match text.as_bytes().first() {
        Some(b'-') => (true, 1),
        Some(b'+') => (false, 1),
        _ => (false, 0),
    }
}

fn radix_of(digits: &str) -> (u32, usize) {
    if digits.starts_with("0x") || digits.starts_with("0X") {
        (16, 2)
    } else if digits.starts_with('0') {
        (8, 0)
    } else {
        (10, 0)
    }
}

fn named_real(body: &str) -> Option<(f64, usize)> {
    let names = [
        ("infinity", f64::INFINITY),
        ("inf", f64::INFINITY),
        ("nan", f64::NAN),
    ];
    let (name, value) = names.into_iter().find(|(name, _)| {
        body.get(..name.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(name))
    })?;
    let payload = if value.is_nan() {
        nan_payload_len(&body[name.len()..])
    } else {
        0
    };
    Some((value, name.len() + payload))
}

/// Length of `(letters, digits and underscores)` after a `nan`.
fn nan_payload_len(rest: &str) -> usize {
    let Some(inner) = rest.strip_prefix('(') else {
        return 0;
    };
    let len = inner
        .bytes()
        .take_while(|b| b.is_ascii_alphanumeric() || *b == b'_')
        .count();
    if inner[len..].starts_with(')') {
        len + 2
    } else {
        0
    }
}

fn decimal_real(body: &str) -> (f64, usize) {
    let bytes = body.as_bytes();
    let digits = |from: usize| {
        bytes[from..]
            .iter()
            .take_while(|b| b.is_ascii_digit())
            .count()
    };
    let whole = digits(0);
    let mut used = whole;
    if bytes.get(used) == Some(&b'.') {
        let fraction = digits(used + 1);
        if whole + fraction == 0 {
            return (0.0, 0);
        }
        used += 1 + fraction;
    }
    if used == 0 {
        return (0.0, 0);
    }
    if matches!(bytes.get(used), Some(b'e' | b'E')) {
        let signed = usize::from(matches!(bytes.get(used + 1), Some(b'+' | b'-')));
        let exponent = if used + 1 + signed < bytes.len() {
            digits(used + 1 + signed)
        } else {
            0
        };
        if exponent > 0 {
            used += 1 + signed + exponent;
        }
    }
    (body[..used].parse().unwrap_or(f64::NAN), used)
}

/// `0x1.8p3`; digits past the 64th bit are dropped, which no configuration file can notice.
fn hex_real(body: &str) -> Option<(f64, usize)> {
    let rest = body
        .strip_prefix("0x")
        .or_else(|| body.strip_prefix("0X"))?;
    let (mut mantissa, mut exponent, mut n_digits, mut used) = (0_u64, 0_i32, 0, 0);
    let mut in_fraction = false;
    for c in rest.chars() {
        match c.to_digit(16) {
            Some(digit) => {
                n_digits += 1;
                let full = mantissa >> 60 != 0;
                if !full {
                    mantissa = mantissa << 4 | u64::from(digit);
                }
                // A digit moves the point right in the whole part, left in the fraction.
                exponent += if full { 4 } else { 0 } - if in_fraction { 4 } else { 0 };
            }
            None if c == '.' && !in_fraction => in_fraction = true,
            None => break,
        }
        used += 1;
    }
    if n_digits == 0 {
        return None;
    }
    let (power, power_len) = binary_exponent(&rest[used..]);
    let value = mantissa as f64 * f64::from(exponent.saturating_add(power)).exp2();
    Some((value, 2 + used + power_len))
}

fn binary_exponent(rest: &str) -> (i32, usize) {
    let Some(after) = rest.strip_prefix(['p', 'P']) else {
        return (0, 0);
    };
    let (negative, sign_len) = sign(after);
    let digits = &after[sign_len..];
    let used = digits.bytes().take_while(u8::is_ascii_digit).count();
    if used == 0 {
        return (0, 0);
    }
    let power: i32 = digits[..used].parse().unwrap_or(i32::MAX / 2);
    (if negative { -power } else { power }, 1 + sign_len + used)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_as_c_reads_them() {
        for (text, expected) in [
            ("42", (42, 2)),
            ("0x20", (32, 4)),
            ("010", (8, 3)),
            ("7.9", (7, 1)),
            ("1e3", (1, 1)),
            ("-1", (u64::MAX, 2)),
            ("0x", (0, 1)),
            ("09", (0, 1)),
            ("99999999999999999999", (u64::MAX, 20)),
            ("abc", (0, 0)),
            ("", (0, 0)),
        ] {
            assert_eq!(integer_prefix(text), expected, "{text}");
        }
    }

    #[test]
    fn reals_as_c_reads_them() {
        for (text, expected) in [
            ("2.5", (2.5, 3)),
            ("-.5", (-0.5, 3)),
            ("5.", (5.0, 2)),
            ("1e3", (1000.0, 3)),
            ("1e", (1.0, 1)),
            ("1e+", (1.0, 1)),
            ("010", (10.0, 3)),
            ("0x1.8p3", (12.0, 7)),
            ("0x10", (16.0, 4)),
            ("0x", (0.0, 1)),
            ("infinite", (f64::INFINITY, 3)),
            (".", (0.0, 0)),
            ("abc", (0.0, 0)),
        ] {
            assert_eq!(real_prefix(text), expected, "{text}");
        }
        assert!(real_prefix("nan").0.is_nan());
    }
}
