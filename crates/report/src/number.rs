//! Numbers as people read them: three or four digits, never more than were measured.

/// A value with three significant digits, plain notation.
///
/// Example: 1234.5 → `1234`, 12.345 → `12.3`, 0.012345 → `0.0123`.
#[must_use]
pub fn short(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let digits_before = value.abs().log10().floor() as i32 + 1;
    let decimals = usize::try_from((3 - digits_before).clamp(0, 6)).unwrap_or(0);
    format!("{value:.decimals$}")
}

/// A value that may be missing.
#[must_use]
pub fn short_or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), short)
}

/// A count with thin groups: 12345 → `12,345`.
#[must_use]
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Bytes with a binary unit: 25276514304 → `23.5 GiB`.
#[must_use]
pub fn bytes(value: u64) -> String {
    let mut value = value as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return format!("{} {unit}", short(value));
        }
        value /= 1024.0;
    }
    format!("{} TiB", short(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortens_to_three_digits() {
        for (value, text) in [
            (1234.5, "1234"),
            (123.45, "123"),
            (12.345, "12.3"),
            (1.0, "1.00"),
            (0.012_345, "0.0123"),
            (0.0, "0"),
            (-5.55, "-5.55"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn groups_counts_and_scales_bytes() {
        assert_eq!(
            (count(0), count(999), count(12_345)),
            ("0".into(), "999".into(), "12,345".into())
        );
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(25_276_514_304), "23.5 GiB");
    }
}
